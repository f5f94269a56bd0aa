"""`adapter_config.json`: a strict schema of our own over PEFT 0.21's `LoraConfig`."""

from dataclasses import dataclass

from loragate.peft_format import json_fields
from loragate.peft_format.errors import CONFIG_FILE, clipped, in_config, quoted
from loragate.peft_format.fields import FIELDS, refused_fields
from loragate.peft_format.strict_json import Limits, parse_object

_LIMITS = Limits(size=1 << 20, depth=8, values=200_000)

_HARMLESS_INITS = frozenset({"gaussian", "eva", "orthogonal", "mica"})
_CONVERTIBLE_INITS = ("pissa", "corda", "olora", "lora_ga")


@dataclass(frozen=True)
class LoraConfig:
    """What an adapter's config says about the computation; the rest of the file is checked and dropped.

    Attributes:
        r: default rank.
        lora_alpha: default alpha; the scaling is alpha / rank, or alpha / √rank with `use_rslora`.
        rank_pattern, alpha_pattern: (pattern, value) pairs in the file's order; the first that matches wins.
        target_modules: a regular expression, "all-linear", or names that match whole or as dotted suffixes.
        exclude_modules: the same, without "all-linear"; empty for none.
        layers_to_transform: layer numbers, sorted; empty for all layers.
        layers_pattern: names of the module lists that those numbers index; empty for any.
        lora_bias: lora_B has a bias.
    """

    r: int
    lora_alpha: float
    use_rslora: bool
    rank_pattern: tuple[tuple[str, int], ...]
    alpha_pattern: tuple[tuple[str, float], ...]
    target_modules: str | tuple[str, ...]
    exclude_modules: str | tuple[str, ...]
    layers_to_transform: tuple[int, ...]
    layers_pattern: tuple[str, ...]
    lora_bias: bool


def parse_config(raw: bytes) -> LoraConfig:
    """Read adapter_config.json; raises AdapterRefused for what cannot be served exactly as PEFT would."""
    fields = parse_object(raw, _LIMITS, CONFIG_FILE)
    _check_known(fields)
    _check_refused(fields)
    _check_initialisation(fields.get("init_lora_weights", True))
    config = LoraConfig(
        r=json_fields.positive_integer(fields.get("r", 8), "r"),
        lora_alpha=json_fields.number(fields.get("lora_alpha", 8), "lora_alpha"),
        use_rslora=json_fields.boolean(fields, "use_rslora"),
        rank_pattern=tuple(
            (key, json_fields.positive_integer(value, "rank_pattern"))
            for key, value in json_fields.mapping(fields, "rank_pattern").items()
        ),
        alpha_pattern=tuple(
            (key, json_fields.number(value, "alpha_pattern"))
            for key, value in json_fields.mapping(fields, "alpha_pattern").items()
        ),
        target_modules=json_fields.pattern_or_names(fields, "target_modules"),
        exclude_modules=json_fields.pattern_or_names(fields, "exclude_modules"),
        layers_to_transform=json_fields.indices(fields, "layers_to_transform"),
        layers_pattern=_layers_pattern(fields),
        lora_bias=json_fields.boolean(fields, "lora_bias"),
    )
    _check_targets(config)
    return config


def _check_known(fields: json_fields.Fields) -> None:
    for name in fields:
        if name not in FIELDS:
            raise in_config(
                name,
                f"{clipped(name)} is not a field of PEFT 0.21's LoraConfig; remove it if the adapter does not need it.",
            )


def _check_refused(fields: json_fields.Fields) -> None:
    if "peft_type" not in fields:
        raise in_config("peft_type", 'peft_type is missing; a LoRA adapter has "LORA".')
    for field in refused_fields():
        value = fields.get(field.name, field.neutral[0])
        if not any(type(value) is type(neutral) and value == neutral for neutral in field.neutral):
            raise in_config(field.name, f"{field.name} is {quoted(value)}: {field.advice}.")


def _check_initialisation(value: object) -> None:
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
        advice = "trains against quantised base weights; train on the base model as it is served"
    else:
        advice = "is not an initialisation that PEFT 0.21 writes"
    raise in_config("init_lora_weights", f"init_lora_weights is {quoted(value)}, which {advice}.")


def _layers_pattern(fields: json_fields.Fields) -> tuple[str, ...]:
    value = fields.get("layers_pattern")
    patterns = json_fields.names([value] if isinstance(value, str) and value else value or None, "layers_pattern")
    if patterns and fields.get("layers_to_transform") is None:
        raise in_config("layers_pattern", "layers_pattern needs layers_to_transform as well.")
    for pattern in patterns:
        # PEFT splices it into a larger expression without brackets, which only a plain path survives.
        if not all(part.isidentifier() and part.isascii() for part in pattern.split(".")):
            raise in_config(
                "layers_pattern",
                f'layers_pattern must name a list of layers, such as "layers", not {quoted(pattern)}.',
            )
    return patterns


def _check_targets(config: LoraConfig) -> None:
    if not config.target_modules:
        raise in_config(
            "target_modules",
            "target_modules is empty; list the modules that the adapter was trained on, or a pattern.",
        )
    if isinstance(config.target_modules, str) and (config.layers_to_transform or config.layers_pattern):
        raise in_config("layers_to_transform", "layers_to_transform needs target_modules to be a list of names.")
