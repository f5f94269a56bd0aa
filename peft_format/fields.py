"""Every field of `adapter_config.json` that PEFT 0.21 can write, and what becomes of it here.

This is the only place that says so; a test compares it with `peft.LoraConfig`. A field that is missing from a
file has its neutral value, and a field that is missing from this table is refused by name.
"""

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Served:
    """Read and acted upon; `config` says how."""

    name: str


@dataclass(frozen=True)
class Ignored:
    """Accepted with any value, because the value cannot change what the adapter computes."""

    name: str
    reason: str


@dataclass(frozen=True)
class Refused:
    """Accepted with a neutral value only; `advice` ends the refusal's sentence, and says what to do."""

    name: str
    advice: str
    neutral: tuple[object, ...] = (None,)


Field = Served | Ignored | Refused

_ORIGIN = "says where the adapter came from; it is checked against the base model that is loaded, not the one named"
_TRAINING = "is used while training only"
_INIT = "only matters to the initialisation named in init_lora_weights, which is checked itself"

_FIELDS: tuple[Field, ...] = (
    Served("r"),
    Served("lora_alpha"),
    Served("use_rslora"),
    Served("rank_pattern"),
    Served("alpha_pattern"),
    Served("target_modules"),
    Served("exclude_modules"),
    Served("layers_to_transform"),
    Served("layers_pattern"),
    Served("lora_bias"),
    Served("init_lora_weights"),
    Ignored("base_model_name_or_path", _ORIGIN),
    Ignored("revision", _ORIGIN),
    Ignored("auto_mapping", "names Python classes to import; nothing in an adapter is ever imported"),
    Ignored("peft_version", "does not change how the tensors are applied"),
    Ignored("inference_mode", "every adapter is served for inference"),
    Ignored("runtime_config", "PEFT drops it when it loads an adapter"),
    Ignored("lora_dropout", _TRAINING),
    Ignored("fan_in_fan_out", "says how the base weight is stored, which PEFT corrects by the module's own kind"),
    Ignored("loftq_config", _INIT),
    Ignored("eva_config", _INIT),
    Ignored("corda_config", _INIT),
    Ignored("lora_ga_config", _INIT),
    Ignored("megatron_core", "only matters with megatron_config, which is refused"),
    Ignored("qalora_group_size", "only matters with use_qalora, which is refused"),
    Refused("peft_type", "only LoRA adapters are served; convert it with peft.convert_to_lora", ("LORA",)),
    Refused("task_type", 'only causal language models are served; train with "CAUSAL_LM"', (None, "CAUSAL_LM")),
    Refused("bias", 'trained biases of the base model are not served; train with bias="none"', ("none",)),
    Refused("use_dora", "DoRA is not served; train with use_dora=false, or merge the adapter", (False,)),
    Refused(
        "modules_to_save",
        "fully trained modules are not served; target them with LoRA instead, or merge the adapter",
        (None, []),
    ),
    Refused("trainable_token_indices", "trained token embeddings are not served; train without them"),
    Refused(
        "target_parameters",
        "LoRA on bare parameters (experts of a mixture) is not served; target modules instead",
        (None, []),
    ),
    Refused("alora_invocation_tokens", "activated LoRA is not served; train without invocation tokens"),
    Refused("layer_replication", "replicated layers are not served; train on the base model's own", (None, [])),
    Refused("use_qalora", "QALoRA is not served; train with use_qalora=false", (False,)),
    Refused("use_bdlora", "block-diagonal LoRA is not served; train without use_bdlora"),
    Refused("arrow_config", "Arrow routing is not served; upload the routed adapters one by one"),
    Refused("velora_config", "VeLoRA is not served; set it to null and save without the lora_velora tensors"),
    Refused("monteclora_config", "Monteclora is not served; train without it"),
    Refused("kasa_config", "KaSA changes the base model's weights and is not served; train without it"),
    Refused("megatron_config", "Megatron's parallel layers are not served; train without them", (None, {})),
    Refused(
        "ensure_weight_tying",
        "tied adapters on embedding and head are not served; if it targets neither, set it to false",
        (False,),
    ),
)

FIELDS: dict[str, Field] = {field.name: field for field in _FIELDS}


def refused_fields() -> Iterator[Refused]:
    return (field for field in _FIELDS if isinstance(field, Refused))
