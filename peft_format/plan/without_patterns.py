"""A config without patterns, for libraries that would match a tenant's patterns with Python's `re`.

PEFT matches `target_modules`, `exclude_modules`, `rank_pattern`, `alpha_pattern` and others with every module's name,
which can take for ever (docs/decisions/0002-bounded-regexes.md). Here they are resolved in bounded time, and replaced
by names of this base model's modules, so that PEFT finds the same modules, ranks and alphas.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from loragate.peft_format.config.lora_config import LoraConfig
from loragate.peft_format.errors import in_config
from loragate.peft_format.patterns.automaton import Budget
from loragate.peft_format.plan.layout import BaseLayout
from loragate.peft_format.plan.mixture import converted
from loragate.peft_format.plan.modules_to_save import saved_modules
from loragate.peft_format.plan.parameters import selected_parameters
from loragate.peft_format.plan.scaling import Overrides, Value
from loragate.peft_format.plan.targets import dotted_suffixes, resolve_targets
from loragate.peft_format.plan.tying import keeps_tied, tied_modules_to_save, tied_targets

_MAX_KEYS = 256  # `re` keeps 512 compiled expressions, and PEFT compiles each key for each module


def without_patterns(config: LoraConfig, layout: BaseLayout) -> LoraConfig:
    """Return a config that selects the same parts of this base model by their full names, with keys of `rank_pattern`
    and `alpha_pattern` that are escaped names. Raise AdapterRejected."""
    budget = Budget()
    config = converted(config, layout, budget)
    tied = keeps_tied(config, layout, budget)
    config = tied_modules_to_save(config, layout)
    targets = tied_targets(config, layout, resolve_targets(config, layout, budget).modules, budget)
    bare, linears = selected_parameters(config, layout)
    modules = tuple(module.name for module in targets)
    parameters = (*(parameter.path for parameter in bare), *(f"{module.name}.weight" for module in linears))
    paths = (*modules, *parameters)
    ranks = Overrides(config.rank_pattern, "rank_pattern", budget)
    alphas = Overrides(config.alpha_pattern, "alpha_pattern", budget)
    selected = (modules if tied else ()) or _listed(config, layout) or modules
    return replace(
        config,
        rank_pattern=_exceptions({path: ranks.of(path, config.r) for path in paths}, config.r, "rank_pattern"),
        alpha_pattern=_exceptions(
            {path: alphas.of(path, config.lora_alpha) for path in paths}, config.lora_alpha, "alpha_pattern"
        ),
        target_modules=selected,
        exclude_modules=_also_matched(selected, modules, layout),
        layers_to_transform=(),
        layers_pattern=(),
        target_parameters=tuple(sorted(parameters)),
        modules_to_save=tuple(module.name for module in saved_modules(config, layout)),
        ensure_weight_tying=tied,
    )


def _listed(config: LoraConfig, layout: BaseLayout) -> tuple[str, ...]:
    """Return the names in a plain list that occur in the model; empty if the targets depend on more than that."""
    if isinstance(config.target_modules, str) or config.exclude_modules or config.layers_to_transform:
        return ()
    existing = {end for name in layout.modules for end in dotted_suffixes(name)}
    return tuple(name for name in config.target_modules if name in existing)


def _also_matched(selected: Collection[str], modules: Collection[str], layout: BaseLayout) -> str | tuple[str, ...]:
    """Return an expression for the modules that PEFT would select as well: a name selects all that end with it."""
    names, wanted = frozenset(selected), frozenset(modules)
    others = (name for name in layout.modules if name not in wanted)
    return "|".join(re.escape(name) for name in others if not names.isdisjoint(dotted_suffixes(name))) or ()


def _exceptions(values: Mapping[str, Value], default: Value, field: str) -> tuple[tuple[str, Value], ...]:
    """Return a pattern for each path whose value is not the default: its shortest end that is unambiguous, escaped."""
    by_end: dict[str, set[Value]] = {}
    for path, value in values.items():
        for end in dotted_suffixes(path):
            by_end.setdefault(end, set()).add(value)
    keys = {_key(path, by_end): value for path, value in values.items() if value != default}
    if len(keys) > _MAX_KEYS:
        message = f"{field} gives {len(keys)} different values to the modules of this model; at most {_MAX_KEYS} are"
        raise in_config(field, f"{message} supported in training.")
    return tuple(keys.items())


def _key(path: str, by_end: Mapping[str, Iterable[object]]) -> str:
    unambiguous = [end for end in dotted_suffixes(path) if len(set(by_end[end])) == 1]
    return re.escape(unambiguous[-1]) if unambiguous else f"^{re.escape(path)}"
