"""From a config and a header to a plan: each targeted module's rank, scaling and tensors.

The tensors present must be exactly the ones that the targets need, with exactly their shapes. So a misread
config ends in a refusal and not in an adapter that is served in part.
"""

from loragate.peft_format import keys
from loragate.peft_format.automaton import Budget
from loragate.peft_format.config import LoraConfig
from loragate.peft_format.errors import in_config, in_tensor, quoted
from loragate.peft_format.header import Header, TensorSpec
from loragate.peft_format.layout import BaseLayout, ModuleKind, TargetModule
from loragate.peft_format.plan import AdapterPlan, ModulePlan
from loragate.peft_format.scaling import Overrides, scaling
from loragate.peft_format.targets import resolve_targets

_MAX_WARNINGS = 20


def plan_adapter(config: LoraConfig, header: Header, layout: BaseLayout) -> AdapterPlan:
    """What to load where; raises AdapterRefused. Reads no tensor."""
    budget = Budget()
    targets = resolve_targets(config, layout, budget)
    ranks = Overrides(config.rank_pattern, "rank_pattern", budget)
    alphas = Overrides(config.alpha_pattern, "alpha_pattern", budget)
    modules: dict[str, ModulePlan] = {}
    for module in targets.modules:
        _check_servable(module)
        rank = _checked_rank(ranks.of(module.name, config.r), module, layout)
        factor = scaling(config, rank, alphas.of(module.name, config.lora_alpha))
        modules[module.name] = _plan_module(module, rank, factor, header, config.lora_bias)
    specs = [spec for plan in modules.values() for spec in plan.tensors]
    _check_nothing_left(header, specs)
    return AdapterPlan(
        modules=modules,
        max_rank=max(plan.rank for plan in modules.values()),
        size_bytes=sum(spec.end - spec.begin for spec in specs),
        warnings=_first([*targets.warnings, *ranks.warnings(modules), *alphas.warnings(modules)]),
    )


def _first(warnings: list[str]) -> tuple[str, ...]:
    more = len(warnings) - _MAX_WARNINGS
    return (*warnings[:_MAX_WARNINGS], *([f"There are {more} more warnings of these kinds."] if more > 0 else []))


def _check_servable(module: TargetModule) -> None:
    if module.kind is ModuleKind.EMBEDDING:
        raise in_config(
            "target_modules",
            f"target_modules selects the embedding {module.name}, which is not served; train without it.",
        )
    if module.kind is ModuleKind.NORM:
        raise in_config(
            "target_modules", f"target_modules selects {module.name}, a norm, which takes no LoRA; leave it out."
        )
    if not module.servable:
        raise in_config(
            "target_modules",
            f"target_modules selects {module.name}, on which no adapter is served here; train without it.",
        )


def _checked_rank(rank: int, module: TargetModule, layout: BaseLayout) -> int:
    if rank > layout.max_rank:
        raise in_config("r", f"The rank on {module.name} is {rank}; at most {layout.max_rank} is served here.")
    return rank


def _plan_module(module: TargetModule, rank: int, factor: float, header: Header, has_bias: bool) -> ModulePlan:
    return ModulePlan(
        module=module,
        rank=rank,
        scaling=factor,
        lora_a=_tensor(header, keys.lora_a(module.name), (rank, module.in_features), module),
        lora_b=_tensor(header, keys.lora_b(module.name), (module.out_features, rank), module),
        bias=_tensor(header, keys.lora_b_bias(module.name), (module.out_features,), module) if has_bias else None,
    )


def _tensor(header: Header, name: str, shape: tuple[int, ...], module: TargetModule) -> TensorSpec:
    spec = header.tensors.get(name)
    if spec is None:
        raise in_tensor(name, f"The tensor {quoted(name)} is missing, though target_modules selects {module.name}.")
    if spec.shape != shape:
        raise in_tensor(
            name,
            f"The tensor {quoted(name)} has the shape {list(spec.shape)}; "
            f"by the config's rank and the base model's {module.name} "
            f"({module.in_features} in, {module.out_features} out) it must be {list(shape)}.",
        )
    return spec


def _check_nothing_left(header: Header, used: list[TensorSpec]) -> None:
    known = {spec.name for spec in used}
    for name in header.tensors:
        if name not in known:
            raise keys.foreign(name)
