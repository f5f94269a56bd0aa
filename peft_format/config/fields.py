"""Every field of `adapter_config.json` that PEFT 0.21 can write, and how it is handled here.

This table is the only source; tests compare `peft.LoraConfig` and docs/adapters.md with it. A field that is missing
from a file has its neutral value. A field that is missing from this table is rejected by name, except for
`LABEL_FIELDS`, which transformers has in the config of the model, and PEFT nowhere.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from loragate.peft_format.kinds import AdapterKind


@dataclass(frozen=True)
class Served:
    """A field that is read; `lora_config` holds its value.

    Attributes:
        meaning: what the field does, for the documentation.
        kind: the feature beyond plain LoRA that the engine must serve for it.
    """

    name: str
    meaning: str
    kind: AdapterKind | None = None


@dataclass(frozen=True)
class Ignored:
    """A field that is accepted with any value, because the value cannot change what the adapter computes."""

    name: str
    reason: str


@dataclass(frozen=True)
class Rejected:
    """A field that is accepted with a neutral value only; `advice` ends the error's sentence and says what to do."""

    name: str
    advice: str
    neutral: tuple[object, ...] = (None,)


Field = Served | Ignored | Rejected

SERVED_PEFT_TYPE = "LORA"
_ORIGIN = "says where the adapter came from; it is checked against the base model that is loaded, not the one named"
_TRAINING = "is used while training only"
_INIT = "only matters to the initialization named in init_lora_weights, which is checked itself"

_FIELDS: tuple[Field, ...] = (
    Served("r", "rank of every module that rank_pattern does not name"),
    Served("lora_alpha", "numerator of the scaling, alpha / rank"),
    Served("use_rslora", "the scaling is alpha / √rank"),
    Served("rank_pattern", "ranks by regular expression; the first that matches wins"),
    Served("alpha_pattern", "alphas by regular expression; the first that matches wins"),
    Served("target_modules", 'names, a regular expression or "all-linear"; on embeddings too', AdapterKind.EMBEDDING),
    Served("exclude_modules", "names or a regular expression"),
    Served("layers_to_transform", "layer numbers"),
    Served("layers_pattern", "names of the module lists that those numbers index"),
    Served("lora_bias", "lora_B has a bias"),
    Served(
        "init_lora_weights", "rejected where it changed the base model's weights: pissa, olora, corda, lora_ga, loftq"
    ),
    Served(
        "task_type", "`SEQ_CLS` and `TOKEN_CLS` have a head for labels; `CAUSAL_LM` has none", AdapterKind.CLASSIFIER
    ),
    Served("use_dora", "a trained magnitude per output", AdapterKind.DORA),
    Served("bias", '"all" and "lora_only" replace the base model\'s biases with trained ones', AdapterKind.BIAS),
    Served("modules_to_save", "linears, embeddings, heads and norms trained in full", AdapterKind.REPLACED),
    Served("trainable_token_indices", "trained rows of embedding and head", AdapterKind.TRAINED_TOKENS),
    Served("target_parameters", "LoRA on the experts and the router of a mixture", AdapterKind.PARAMETERS),
    Served("alora_invocation_tokens", "active from these tokens onwards", AdapterKind.ACTIVATED),
    Served("use_bdlora", "A or B is block-diagonal", AdapterKind.BLOCK_DIAGONAL),
    Served("ensure_weight_tying", "a change of a tied embedding or head changes the other as well"),
    Served("use_qalora", "rejected where the base was quantized with GPTQ; on others PEFT trains plain LoRA"),
    Ignored("base_model_name_or_path", _ORIGIN),
    Ignored("revision", _ORIGIN),
    Ignored("auto_mapping", "names Python classes to import; nothing in an adapter is ever imported"),
    Ignored("peft_version", "does not change how the tensors are applied"),
    Ignored("inference_mode", "every adapter is served for inference"),
    Ignored("runtime_config", "PEFT drops it when it loads an adapter"),
    Ignored("lora_dropout", _TRAINING),
    Ignored("fan_in_fan_out", "says how the base weight is stored, which PEFT corrects by the module's own kind"),
    Ignored("velora_config", "VeLoRA compresses what training keeps for the backward pass; the result is plain LoRA"),
    Ignored("monteclora_config", "MonteCLoRA perturbs A while training only; the result is plain LoRA"),
    Ignored("loftq_config", _INIT),
    Ignored("eva_config", _INIT),
    Ignored("corda_config", _INIT),
    Ignored("lora_ga_config", _INIT),
    Ignored("megatron_core", "only matters with megatron_config, which is rejected"),
    Ignored("qalora_group_size", "only matters to QALoRA on a base quantized with GPTQ, which is rejected"),
    Rejected("peft_type", "only LoRA adapters are served; convert it with peft.convert_to_lora", (SERVED_PEFT_TYPE,)),
    Rejected("layer_replication", "replicated layers are not served; train on the base model's own", (None, [])),
    Rejected("arrow_config", "Arrow routing is not served; upload the routed adapters one by one"),
    Rejected("kasa_config", "KaSA changes the base model's weights and is not served; train without it"),
    Rejected("megatron_config", "Megatron's parallel layers are not served; train without them", (None, {})),
)

FIELDS: dict[str, Field] = {field.name: field for field in _FIELDS}

_LABEL_FIELDS: tuple[Field, ...] = (
    Served("id2label", "the labels by the number of the head's output; without it `LABEL_0` and so on"),
    Served("problem_type", "the activation, as in transformers: softmax, sigmoid, or none for a regression"),
    Ignored("label2id", "is the inverse of id2label"),
    Ignored("num_labels", "is the number of the head's outputs"),
)

LABEL_FIELDS: dict[str, Field] = {field.name: field for field in _LABEL_FIELDS}
"""The fields of a classifier that may be added to the file. PEFT ignores them, with a warning."""


def rejected_fields() -> Iterator[Rejected]:
    """Return the fields that must have a neutral value."""
    return (field for field in _FIELDS if isinstance(field, Rejected))
