"""The strict schema of `adapter_config.json`, over PEFT 0.21's `LoraConfig`."""

import re
from dataclasses import dataclass

from loragate.peft_format.classification import ProblemType, Task
from loragate.peft_format.config import json_fields
from loragate.peft_format.config.acceptance import check_acceptable
from loragate.peft_format.config.block_diagonal import BlockDiagonal, parse_block_diagonal
from loragate.peft_format.config.labels import parse_labels, parse_problem_type, parse_task
from loragate.peft_format.config.strict_json import Limits, parse_object
from loragate.peft_format.errors import CONFIG_FILE, in_config, quoted

_LIMITS = Limits(size=1 << 20, depth=8, values=200_000)

_PATH = re.compile(r"[\w-]+(\.[\w-]+)*", re.ASCII)
_MAX_EMBEDDINGS = 16
_MAX_LAYER_LISTS = 64
_BIASES = ("none", "all", "lora_only")

INPUT_EMBEDDING = ""
"""Stands for the input embedding's name where `trainable_token_indices` is a plain list."""


@dataclass(frozen=True)
class LoraConfig:
    """The fields of an adapter's config that change the computation; the rest of the file is checked and dropped.

    Attributes:
        r: default rank.
        lora_alpha: default alpha; the scaling is alpha / rank, or alpha / √rank with `use_rslora`.
        rank_pattern, alpha_pattern: (pattern, value) pairs in the file's order; the first that matches wins.
        target_modules: a regular expression, "all-linear", or names that match whole or as dotted suffixes.
        target_parameters: names of bare parameters, sorted, that match whole or as dotted suffixes.
        exclude_modules: as target_modules, without "all-linear"; empty for none.
        layers_to_transform: layer numbers, sorted; empty for all layers.
        layers_pattern: names of the module lists that those numbers index; empty for any.
        lora_bias: lora_B has a bias.
        bias: which biases of the base model were trained: "none", "all", or "lora_only" for those of LoRA's targets.
        modules_to_save: ends of the names of modules that were trained in full, sorted.
        trainable_token_indices: (end of a module's name, token ids) pairs, in the file's order.
        ensure_weight_tying: a change of a tied embedding or head changes the other as well.
        alora_invocation_tokens: None unless the adapter is activated by them.
        use_qalora: trained as QALoRA where the base was quantized with GPTQ, and as plain LoRA elsewhere.
        task_type: None unless the adapter has a head for labels.
        id2label: its labels by the head's outputs; empty if the file does not name them.
        problem_type: None if the file does not have it.
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
    use_dora: bool
    bias: str
    target_parameters: tuple[str, ...]
    modules_to_save: tuple[str, ...]
    trainable_token_indices: tuple[tuple[str, tuple[int, ...]], ...]
    ensure_weight_tying: bool
    alora_invocation_tokens: tuple[int, ...] | None
    use_bdlora: BlockDiagonal | None
    use_qalora: bool
    task_type: Task | None = None
    id2label: tuple[str, ...] = ()
    problem_type: ProblemType | None = None


def parse_config(raw: bytes) -> LoraConfig:
    """Parse adapter_config.json; raises AdapterRejected for a config that cannot be served exactly as PEFT would."""
    fields = parse_object(raw, _LIMITS, CONFIG_FILE)
    check_acceptable(fields)
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
        use_dora=json_fields.boolean(fields, "use_dora"),
        bias=_bias(fields.get("bias", "none")),
        target_parameters=tuple(
            sorted(set(json_fields.names(fields.get("target_parameters") or None, "target_parameters")))
        ),
        modules_to_save=_modules_to_save(fields),
        trainable_token_indices=_trained_tokens(fields.get("trainable_token_indices")),
        ensure_weight_tying=json_fields.boolean(fields, "ensure_weight_tying"),
        alora_invocation_tokens=json_fields.token_ids(fields.get("alora_invocation_tokens"), "alora_invocation_tokens")
        or None,
        use_bdlora=parse_block_diagonal(fields.get("use_bdlora")),
        use_qalora=json_fields.boolean(fields, "use_qalora"),
        task_type=parse_task(fields.get("task_type")),
        id2label=parse_labels(fields.get("id2label")),
        problem_type=parse_problem_type(fields.get("problem_type")),
    )
    _check_targets(config)
    _check_combinations(config)
    return config


def _layers_pattern(fields: json_fields.Fields) -> tuple[str, ...]:
    value = fields.get("layers_pattern")
    listed = [value] if isinstance(value, str) and value else value or None
    patterns = json_fields.names(listed, "layers_pattern", _MAX_LAYER_LISTS)
    if patterns and fields.get("layers_to_transform") is None:
        raise in_config("layers_pattern", "layers_pattern needs layers_to_transform as well.")
    for pattern in patterns:
        # PEFT inserts it into a larger expression without brackets, which is safe for a plain path only.
        if not all(part.isidentifier() and part.isascii() for part in pattern.split(".")):
            raise in_config(
                "layers_pattern",
                f'layers_pattern must name a list of layers, such as "layers", not {quoted(pattern)}.',
            )
    return patterns


def _bias(value: object) -> str:
    if not isinstance(value, str) or value not in _BIASES:
        raise in_config("bias", f"bias must be one of {', '.join(_BIASES)}, not {quoted(value)}.")
    return value


def _modules_to_save(fields: json_fields.Fields) -> tuple[str, ...]:
    names = json_fields.names(fields.get("modules_to_save") or None, "modules_to_save")
    for name in names:
        # PEFT inserts it into a larger expression, which is safe for a plain path only.
        if not _PATH.fullmatch(name):
            raise in_config("modules_to_save", f"modules_to_save must name modules of the model, not {quoted(name)}.")
    return tuple(sorted(set(names)))


def _trained_tokens(value: object) -> tuple[tuple[str, tuple[int, ...]], ...]:
    name = "trainable_token_indices"
    by_module = value if isinstance(value, dict) else {} if value is None else {INPUT_EMBEDDING: value}
    if len(by_module) > _MAX_EMBEDDINGS:
        raise in_config(name, f"{name} must name at most {_MAX_EMBEDDINGS} modules.")
    pairs = tuple((module, json_fields.token_ids(ids, name)) for module, ids in by_module.items())
    for module, ids in pairs:
        if not ids or (isinstance(value, dict) and not module):
            raise in_config(name, f"{name} must list at least one token for a named module, or be null.")
        if len(set(ids)) < len(ids):
            raise in_config(name, f"{name} lists a token twice, so its row is ambiguous; list it once.")
    return pairs


def _check_targets(config: LoraConfig) -> None:
    if not config.target_modules and not config.target_parameters:
        raise in_config(
            "target_modules",
            "target_modules is empty; list the modules that the adapter was trained on, or a pattern.",
        )
    if isinstance(config.target_modules, str) and (config.layers_to_transform or config.layers_pattern):
        raise in_config("layers_to_transform", "layers_to_transform needs target_modules to be a list of names.")


def _check_combinations(config: LoraConfig) -> None:
    """Raise AdapterRejected for combinations that PEFT 0.21 rejects as well."""
    variants = {
        "use_dora": config.use_dora,
        "use_bdlora": config.use_bdlora is not None,
        "alora_invocation_tokens": config.alora_invocation_tokens is not None,
    }
    used = [name for name, is_used in variants.items() if is_used]
    if len(used) > 1:
        raise in_config(used[0], f"{' and '.join(used)} exclude each other in PEFT; keep the one that was trained.")
    if config.task_type is None:
        for name in ("id2label", "problem_type"):
            if getattr(config, name):
                raise in_config(name, f'{name} is for a classifier: set task_type to "SEQ_CLS" or "TOKEN_CLS".')
    elif config.alora_invocation_tokens is not None:
        raise in_config(
            "alora_invocation_tokens", "alora_invocation_tokens and a task_type with a head exclude each other."
        )
    if config.use_dora and config.lora_bias:
        raise in_config(
            "lora_bias", "lora_bias and use_dora exclude each other in PEFT; keep the one that was trained."
        )
