"""The base model's layout: its modules and parameters, by the names that transformers gives them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from loragate.peft_format.classification import ClassifierHead, Task
from loragate.peft_format.kinds import AdapterKind

_HEAD_NAMES = ("lm_head", "embed_out")


class ModuleKind(StrEnum):
    LINEAR = "linear"
    CONV1D = "conv1d"
    EMBEDDING = "embedding"
    NORM = "norm"


@dataclass(frozen=True)
class TargetModule:
    """One leaf module of the base model, whose weight is applied to each row separately.

    Attributes:
        in_features: for an embedding the vocabulary, for a norm its width.
        out_features: for an embedding or a norm its width.
        servable: an adapter may change it, in the ways that `BaseLayout.serves` names and its kind allows.
        bias: it has a bias, [out_features].
    """

    name: str
    kind: ModuleKind
    in_features: int
    out_features: int
    servable: bool = True
    bias: bool = False

    def __post_init__(self) -> None:
        assert self.name, "a module has a name"
        assert self.in_features > 0, f"{self.name}: in_features must be positive"
        assert self.out_features > 0, f"{self.name}: out_features must be positive"

    @property
    def weight_shape(self) -> tuple[int, ...]:
        """The shape of its weight in the checkpoint."""
        match self.kind:
            case ModuleKind.LINEAR:
                return (self.out_features, self.in_features)
            case ModuleKind.CONV1D | ModuleKind.EMBEDDING:
                return (self.in_features, self.out_features)
            case ModuleKind.NORM:
                return (self.out_features,)


@dataclass(frozen=True)
class BaseParameter:
    """A parameter that belongs to none of the `TargetModule`s: a mixture's stacked experts, its router's weight.

    Attributes:
        module: the dotted path of the module that holds it.
        name: its attribute there, e.g. "gate_up_proj".
        shape: with three dimensions, the first counts the experts.
        transposed: its experts are stored as [in, out] (the module's `is_transposed`), not as [out, in].
        servable: LoRA on it can be served.
    """

    module: str
    name: str
    shape: tuple[int, ...]
    transposed: bool = False
    servable: bool = True

    @property
    def path(self) -> str:
        return f"{self.module}.{self.name}"


@dataclass(frozen=True)
class BaseLayout:
    """Every module and bare parameter of the base model that an adapter could change, in the model's order.

    Attributes:
        modules: keyed by dotted path.
        parameters: keyed by dotted path; those of one module in the order in which it registers them.
        tied_embeddings: the output head's weight is the input embedding's.
        serves: the features beyond plain LoRA that the engine serves.
        input_embedding, head: paths of `get_input_embeddings()` and `get_output_embeddings()`; empty if unknown.
        dtype: the dtype that the model computes in, by torch's name.
        classifier_heads: the heads of transformers' classes for other tasks on this base model.
    """

    model_type: str
    num_layers: int
    modules: Mapping[str, TargetModule]
    tied_embeddings: bool = False
    max_rank: int = 256
    parameters: Mapping[str, BaseParameter] = field(default_factory=dict)
    serves: frozenset[AdapterKind] = frozenset()
    input_embedding: str = ""
    head: str = ""
    dtype: str = "float32"
    classifier_heads: Mapping[Task, ClassifierHead] = field(default_factory=dict)

    def __post_init__(self) -> None:
        assert self.max_rank > 0, "max_rank must be positive"
        assert all(name == module.name for name, module in self.modules.items()), "modules are keyed by name"
        assert all(path == parameter.path for path, parameter in self.parameters.items()), "parameters, by path"

    @property
    def embedding(self) -> TargetModule | None:
        """The input embedding."""
        if self.input_embedding:
            return self.modules.get(self.input_embedding)
        return next((module for module in self.modules.values() if module.kind is ModuleKind.EMBEDDING), None)

    @property
    def tied_head(self) -> TargetModule | None:
        """The output head, if its weight is the input embedding's."""
        return self.output_head if self.tied_embeddings else None

    @property
    def output_head(self) -> TargetModule | None:
        """The module that PEFT leaves out of "all-linear": what `get_output_embeddings()` returns."""
        if self.head:
            return self.modules.get(self.head)
        for module in self.modules.values():
            if module.kind is ModuleKind.LINEAR and module.name.rsplit(".", 1)[-1] in _HEAD_NAMES:
                return module
        return None
