"""Checks of a whole config: its kind is LoRA, every field is known, no value is unservable, the base is unchanged."""

from loragate.peft_format.config.fields import FIELDS, LABEL_FIELDS, SERVED_PEFT_TYPE, rejected_fields
from loragate.peft_format.config.json_fields import Fields
from loragate.peft_format.errors import clipped, in_config, quoted

_HARMLESS_INITS = frozenset({"gaussian", "eva", "orthogonal", "mica"})
_CONVERTIBLE_INITS = ("pissa", "corda", "olora", "lora_ga")


def check_acceptable(fields: Fields) -> None:
    """Raise AdapterRejected, naming the first field at fault."""
    _check_peft_type(fields)
    _check_known(fields)
    _check_rejected(fields)
    _check_initialization(fields.get("init_lora_weights", True))


def _check_peft_type(fields: Fields) -> None:
    """Check the kind before the other fields: other kinds of adapters have fields that are unknown here."""
    if "peft_type" not in fields:
        raise in_config("peft_type", 'peft_type is missing; a LoRA adapter has "LORA".')
    kind = fields["peft_type"]
    if kind != SERVED_PEFT_TYPE:
        raise in_config(
            "peft_type",
            f"peft_type is {quoted(kind)}: this kind of adapter is not served; the only one served is "
            f'"{SERVED_PEFT_TYPE}". Train a LoRA adapter, or convert this one with peft.convert_to_lora.',
        )


def _check_known(fields: Fields) -> None:
    for name in fields:
        if name not in FIELDS and name not in LABEL_FIELDS:
            raise in_config(
                name,
                f"{clipped(name)} is not a field of PEFT 0.21's LoraConfig; remove it if the adapter does not need it.",
            )


def _check_rejected(fields: Fields) -> None:
    for field in rejected_fields():
        value = fields.get(field.name, field.neutral[0])
        if not any(type(value) is type(neutral) and value == neutral for neutral in field.neutral):
            raise in_config(field.name, f"{field.name} is {quoted(value)}: {field.advice}.")


def _check_initialization(value: object) -> None:
    if isinstance(value, bool):
        return
    kind = value.lower() if isinstance(value, str) else ""
    if kind in _HARMLESS_INITS:
        return
    if kind.startswith(_CONVERTIBLE_INITS):
        advice = (
            "changes the base model's weights, so the adapter alone gives wrong tokens; save it again with "
            "save_pretrained(…, path_initial_model_for_weight_conversion=…)"
        )
    elif kind == "loftq":
        advice = "trains against quantized base weights; train on the base model as it is served"
    else:
        advice = "is not an initialization that PEFT 0.21 writes"
    raise in_config("init_lora_weights", f"init_lora_weights is {quoted(value)}, which {advice}.")
