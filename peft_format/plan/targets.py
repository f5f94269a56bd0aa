"""The modules that an adapter changes: PEFT 0.21's `check_target_module_exists` over the base model's layout."""

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from loragate.peft_format.config.lora_config import LoraConfig
from loragate.peft_format.errors import AdapterRejected, in_config, quoted
from loragate.peft_format.patterns.automaton import Budget
from loragate.peft_format.patterns.pattern import FullPattern, NumberedList
from loragate.peft_format.plan.layout import BaseLayout, ModuleKind, TargetModule

_ALL_LINEAR = "all-linear"
_NO_TARGETS = "dummy-target-modules"
_ANY_LAYER = re.compile(r".*?\.[^.]*\.(?P<idx>\d+)\.")


@dataclass(frozen=True)
class Targets:
    """The targeted modules in the layout's order, with a warning for each name in the config that matched nothing."""

    modules: tuple[TargetModule, ...]
    warnings: tuple[str, ...]


def is_all_linear(target_modules: str | tuple[str, ...]) -> bool:
    return isinstance(target_modules, str) and target_modules.lower() == _ALL_LINEAR


def resolve_targets(config: LoraConfig, layout: BaseLayout, budget: Budget) -> Targets:
    """Return the modules that PEFT would wrap; raises AdapterRejected when names are given and none of them matches."""
    names = _all_linear(layout) if is_all_linear(config.target_modules) else config.target_modules
    if not names or names == _NO_TARGETS:
        return Targets((), ())
    listed = frozenset[str]() if isinstance(names, str) else frozenset(names)
    excluded = selector(config.exclude_modules, "exclude_modules", budget)
    targeted = selector(names, "target_modules", budget)
    in_layers = _layer_filter(config, budget)
    saved = frozenset(config.modules_to_save)
    modules = tuple(
        module
        for name, module in layout.modules.items()
        # As in PEFT, a name that is listed in full is taken in every layer.
        if not excluded(name) and not lies_in(name, saved) and targeted(name) and (name in listed or in_layers(name))
    )
    if not modules and not config.target_parameters:
        raise nothing_matched(config.target_modules, layout)
    return Targets(modules, tuple(_unmatched(config, layout)))


def nothing_matched(target_modules: str | tuple[str, ...], layout: BaseLayout) -> AdapterRejected:
    """Return the error for names or a pattern that match no module of this model."""
    return in_config(
        "target_modules",
        f"target_modules, {quoted(target_modules)}, matches no module of this {layout.model_type} "
        "model that is not excluded; list the modules by the names they have in this model.",
    )


def lies_in(name: str, paths: Collection[str]) -> bool:
    """Return whether one of `paths` is a run of whole components of `name`. Time does not grow with `paths`."""
    parts = name.split(".")
    ends = range(1, len(parts) + 1)
    return bool(paths) and any(".".join(parts[start:end]) in paths for end in ends for start in range(end))


def _all_linear(layout: BaseLayout) -> tuple[str, ...]:
    head = layout.output_head
    return tuple(
        module.name
        for module in layout.modules.values()
        if module.kind in (ModuleKind.LINEAR, ModuleKind.CONV1D) and module is not head
    )


def selector(spec: str | tuple[str, ...], field: str, budget: Budget) -> Callable[[str], bool]:
    """Return a test of whether a pattern matches a name, or a list holds the name or one of its dotted suffixes."""
    if isinstance(spec, str):
        return FullPattern(spec, field, budget).matches
    names = frozenset(spec)
    return lambda name: not names.isdisjoint(dotted_suffixes(name))


def dotted_suffixes(name: str) -> Iterator[str]:
    """Yield "a.b.c", "b.c" and "c" for "a.b.c"."""
    yield name
    dot = name.find(".")
    while dot >= 0:
        yield name[dot + 1 :]
        dot = name.find(".", dot + 1)


def _layer_filter(config: LoraConfig, budget: Budget) -> Callable[[str], bool]:
    """Return a test of whether the first numbered list in a module's path has one of the layers to transform."""
    if not config.layers_to_transform:
        return lambda name: True
    layers = frozenset(config.layers_to_transform)
    lists = [NumberedList(path, "layers_pattern", budget) for path in config.layers_pattern]

    def in_layers(name: str) -> bool:
        if not lists:
            match = _ANY_LAYER.match(name)
            return match is not None and int(match["idx"]) in layers
        indices = (each.index_in(name) for each in lists)
        return next((index for index in indices if index is not None), None) in layers

    return in_layers


def _unmatched(config: LoraConfig, layout: BaseLayout) -> Iterator[str]:
    """Yield a warning for each listed name that matches no module: PEFT skips it silently if another name matches."""
    existing = {suffix for name in layout.modules for suffix in dotted_suffixes(name)}
    for field, spec in (
        ("target_modules", config.target_modules),
        ("exclude_modules", config.exclude_modules),
    ):
        if not isinstance(spec, str):
            for name in sorted(set(spec) - existing):
                yield f"{field}: {quoted(name)} matches no module of this {layout.model_type} model."
