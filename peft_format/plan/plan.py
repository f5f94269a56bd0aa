"""Plans: for each part of the base model that an adapter changes, the kind of change and its tensors."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from loragate.peft_format.classification import Classifier
from loragate.peft_format.kinds import AdapterKind
from loragate.peft_format.plan.layout import BaseParameter, TargetModule
from loragate.peft_format.safetensors.header import TensorSpec


@dataclass(frozen=True)
class ModulePlan:
    """LoRA on a Linear or Conv1D: y += scaling · (B · (A · x) + bias).

    With DoRA (arXiv:2402.09353) let W' = scaling · B · A + W, with W as [out_features, in_features]; then
    y = magnitude / ‖W'‖ · (W' · x) + the base bias, where ‖W'‖ is the norm of each row.

    Attributes:
        lora_a: A, [rank, in_features]; block-diagonal in `a_blocks` blocks, [rank, in_features / a_blocks].
        lora_b: B, [out_features, rank]; block-diagonal in `b_blocks` blocks, [out_features, rank / b_blocks].
        bias: [out_features], or None without `lora_bias`.
        magnitude: [out_features], or None without DoRA.
        a_blocks, b_blocks: where > 1, the rows are divided into that many equal pieces, which are the diagonal blocks
            from the top left to the bottom right (BD-LoRA).
    """

    module: TargetModule
    rank: int
    scaling: float
    lora_a: TensorSpec
    lora_b: TensorSpec
    bias: TensorSpec | None
    magnitude: TensorSpec | None = None
    a_blocks: int = 1
    b_blocks: int = 1

    @property
    def tensors(self) -> tuple[TensorSpec, ...]:
        return tuple(spec for spec in (self.lora_a, self.lora_b, self.bias, self.magnitude) if spec is not None)


@dataclass(frozen=True)
class EmbeddingPlan:
    """LoRA on an embedding: the vector of token t gains scaling · B · A[:, t].

    With DoRA the sum is then multiplied by magnitude / ‖W'‖, the norm of each column of
    W' = W + scaling · (B · A)ᵀ, [vocabulary, dim]. Where the embedding scales what it looks up (Gemma's
    `embed_scale`), it scales the gain in the same way, and the norm is that of the stored weight.

    Attributes:
        lora_a: A, [rank, vocabulary].
        lora_b: B, [dim, rank].
        magnitude: [dim], or None without DoRA.
    """

    module: TargetModule
    rank: int
    scaling: float
    lora_a: TensorSpec
    lora_b: TensorSpec
    magnitude: TensorSpec | None = None

    @property
    def tensors(self) -> tuple[TensorSpec, ...]:
        return tuple(spec for spec in (self.lora_a, self.lora_b, self.magnitude) if spec is not None)


@dataclass(frozen=True)
class StackedFactors:
    """The factors of all experts in two tensors, as PEFT stores them.

    Attributes:
        lora_a: [experts · rank, in_features], expert-major: `reshape(experts, rank, in_features)`.
        lora_b: [out_features, rank · experts], rank-major: `reshape(out_features, rank, experts)`.
    """

    lora_a: TensorSpec
    lora_b: TensorSpec

    @property
    def tensors(self) -> tuple[TensorSpec, ...]:
        return (self.lora_a, self.lora_b)


@dataclass(frozen=True)
class Branch:
    """LoRA on some of one expert's outputs.

    Attributes:
        lora_a: [rank of the branch, in_features].
        lora_b: [outputs of the branch, rank of the branch].
        out_start: the first of its outputs within the expert's.
    """

    lora_a: TensorSpec
    lora_b: TensorSpec
    out_start: int


@dataclass(frozen=True)
class SplitFactors:
    """One pair of tensors for each expert and, where gate and up are fused, for each of these branches.

    Adapters trained on transformers 4 are stored this way. The fused expert's A is its branches' As stacked, and its B
    the block-diagonal matrix of their Bs.

    Attributes:
        experts: the branches by expert, in the order of their outputs.
    """

    experts: tuple[tuple[Branch, ...], ...]

    @property
    def tensors(self) -> tuple[TensorSpec, ...]:
        return tuple(spec for branches in self.experts for b in branches for spec in (b.lora_a, b.lora_b))


@dataclass(frozen=True)
class ParameterPlan:
    """LoRA on a bare parameter: W[e] += scaling · B[e] · A[e], each W[e] taken as [out_features, in_features].

    Attributes:
        experts: 1 for a parameter of two dimensions, such as a router's weight.
        rank: of each expert; of a fused one, the sum of its branches' ranks.
        scaling: for the tensors as stored; the same for every branch.
    """

    parameter: BaseParameter
    experts: int
    in_features: int
    out_features: int
    rank: int
    scaling: float
    factors: StackedFactors | SplitFactors

    @property
    def tensors(self) -> tuple[TensorSpec, ...]:
        return self.factors.tensors


@dataclass(frozen=True)
class ReplacedModule:
    """A fully trained module (`modules_to_save`), whose parameters replace the base model's.

    A head that is tied to the embedding becomes independent of it: replacing one does not change the other.

    Attributes:
        parameters: "weight" and, where the module has one, "bias", shaped as in the base model's checkpoint.
    """

    module: TargetModule
    parameters: Mapping[str, TensorSpec]

    @property
    def tensors(self) -> tuple[TensorSpec, ...]:
        return tuple(self.parameters.values())


@dataclass(frozen=True)
class ClassifierPlan:
    """A head for labels on the final states, in place of the base model's head for tokens.

    Attributes:
        head: "weight", [labels, hidden size], and, where the task's class has one, "bias", [labels].
    """

    classifier: Classifier
    head: ReplacedModule


@dataclass(frozen=True)
class TrainedTokens:
    """Rows that replace the base model's (`trainable_token_indices`), before an embedding scales them.

    Attributes:
        modules: the embedding or head that was trained, then the modules tied to it that change with it.
        token_ids: the rows; none occurs twice.
        rows: [tokens, dim], in the order of `token_ids`.
    """

    modules: tuple[TargetModule, ...]
    token_ids: tuple[int, ...]
    rows: TensorSpec

    @property
    def tensors(self) -> tuple[TensorSpec, ...]:
        return (self.rows,)


_Part = ModulePlan | EmbeddingPlan | ParameterPlan | ReplacedModule | TrainedTokens


@dataclass(frozen=True)
class TiedPair:
    """Two tensors that hold the same values; if `transposed`, the second is the transpose of the first."""

    first: TensorSpec
    second: TensorSpec
    transposed: bool


@dataclass(frozen=True)
class AdapterPlan:
    """Everything that one adapter changes. Mappings are in the layout's order; all other parts are unchanged.

    Attributes:
        modules, embeddings: LoRA by module name.
        parameters: LoRA by the parameter's path.
        replaced: by module name; these modules have no LoRA.
        trained_tokens: by the name of the module that was trained.
        biases: by module name, [out_features], replacing the base bias; with DoRA too, the bias is added last.
        classifier: the head of a classifier, or None for an adapter that generates.
        base_copies: the base model's own parameters that PEFT saved with the adapter, by their path in the base model
            ("lm_head.weight"): the adapter fits only a base model with the same values.
        invocation_tokens: with aLoRA, the tokens that activate the adapter: from the start of their last occurrence
            in the prompt it changes them and all that follow. Where they do not occur, it changes nothing.
        tied: the tensors whose values must be equal; `checks.values.check_tied` compares them.
        warnings: sentences for the owner about parts of the config that change nothing.
    """

    modules: Mapping[str, ModulePlan]
    embeddings: Mapping[str, EmbeddingPlan] = field(default_factory=dict)
    parameters: Mapping[str, ParameterPlan] = field(default_factory=dict)
    replaced: Mapping[str, ReplacedModule] = field(default_factory=dict)
    trained_tokens: Mapping[str, TrainedTokens] = field(default_factory=dict)
    biases: Mapping[str, TensorSpec] = field(default_factory=dict)
    classifier: ClassifierPlan | None = None
    base_copies: Mapping[str, TensorSpec] = field(default_factory=dict)
    invocation_tokens: tuple[int, ...] | None = None
    tied: tuple[TiedPair, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def max_rank(self) -> int:
        """The largest rank of all modules, embeddings and parameters; 0 without LoRA."""
        ranks = [
            *(plan.rank for plan in self.modules.values()),
            *(plan.rank for plan in self.embeddings.values()),
            *(plan.rank for plan in self.parameters.values()),
        ]
        return max(ranks, default=0)

    @property
    def tensors(self) -> tuple[TensorSpec, ...]:
        """All tensors that are loaded: all but `base_copies`."""
        parts: list[Mapping[str, _Part]] = [self.modules, self.embeddings, self.parameters]
        parts += [self.replaced, self.trained_tokens]
        head = () if self.classifier is None else self.classifier.head.tensors
        loaded = (spec for part in parts for plan in part.values() for spec in plan.tensors)
        return (*loaded, *self.biases.values(), *head)

    @property
    def size_bytes(self) -> int:
        """The size of all loaded tensors, as stored."""
        return sum(spec.end - spec.begin for spec in self.tensors)

    @property
    def kinds(self) -> frozenset[AdapterKind]:
        """The features that an engine must serve beyond plain LoRA."""
        magnitudes = [
            *(plan.magnitude for plan in self.modules.values()),
            *(plan.magnitude for plan in self.embeddings.values()),
        ]
        needed = {
            AdapterKind.DORA: any(magnitudes),
            AdapterKind.EMBEDDING: self.embeddings,
            AdapterKind.BLOCK_DIAGONAL: any(max(p.a_blocks, p.b_blocks) > 1 for p in self.modules.values()),
            AdapterKind.PARAMETERS: self.parameters,
            AdapterKind.REPLACED: self.replaced,
            AdapterKind.TRAINED_TOKENS: self.trained_tokens,
            AdapterKind.BIAS: self.biases,
            AdapterKind.ACTIVATED: self.invocation_tokens is not None,
            AdapterKind.CLASSIFIER: self.classifier is not None,
            AdapterKind.BASE_COPIES: self.base_copies,
        }
        return frozenset(kind for kind, used in needed.items() if used)
