"""Conversion of adapters for mixtures of experts from the names that transformers 4 used.

In transformers 4 each expert had its own linears, and the router was a linear too. Transformers 5 stacks all experts
in one parameter, with gate and up fused, and PEFT rewrites `target_modules` into `target_parameters` when it loads
(peft/utils/transformers_weight_conversion.py). The same is done here, so that a config has the same meaning
whenever it was written. The tensors' names show which of the two layouts a file has.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from loragate.peft_format.config.lora_config import LoraConfig
from loragate.peft_format.errors import in_config
from loragate.peft_format.patterns.automaton import Budget
from loragate.peft_format.plan.layout import BaseLayout, BaseParameter, ModuleKind
from loragate.peft_format.plan.targets import is_all_linear, nothing_matched, selector

_FUSED = "gate_up_proj"
_DOWN = "down_proj"


@dataclass(frozen=True)
class Family:
    """The names that transformers 4 used for the parts of a mixture.

    Attributes:
        branches: the two linears of an expert that are fused now, in the order of their outputs.
        down: the third.
        block: the module that contained router and experts, or None where it is still called `mlp`.
    """

    branches: tuple[str, str]
    down: str
    block: str | None = None

    @property
    def parameters(self) -> dict[str, str]:
        """The old name of each linear, with the parameter that replaced it."""
        return {"gate": "gate.weight", **dict.fromkeys(self.branches, _FUSED), self.down: _DOWN}

    def parts(self, parameter: BaseParameter) -> tuple[str, ...]:
        """Return the old linears of one expert that make up the parameter; empty if it was never split."""
        return {_FUSED: self.branches, _DOWN: (self.down,)}.get(parameter.name, ())

    def renamed(self, tensor: str) -> str:
        """Return a tensor's name in the current spelling, except for the experts' own part."""
        return tensor.replace(f".{self.block}.", ".mlp.") if self.block else tensor


_MIXTRAL = Family(("w1", "w3"), "w2", "block_sparse_moe")
_QWEN = Family(("gate_proj", "up_proj"), "down_proj")
_FAMILIES = {
    **dict.fromkeys(("minimax", "minimax_m2", "mixtral"), _MIXTRAL),
    **dict.fromkeys(
        (
            *("afmoe", "beam", "cohere2_moe", "deepseek_v2", "deepseek_v3", "deepseek_v32", "dots1", "ernie4_5_moe"),
            *("exaone_moe", "flex_olmo", "glm4_moe", "glm4_moe_lite", "glm4v_moe", "glm_moe_dsa", "hunyuan_v1_moe"),
            *("longcat_flash", "mellum", "olmoe", "qwen3_moe", "qwen3_next", "qwen3_omni_moe", "qwen3_omni_moe_text"),
            *("qwen3_omni_moe_thinker", "solar_open"),
        ),
        _QWEN,
    ),
}


def family_of(layout: BaseLayout) -> Family | None:
    """Return the old names that PEFT converts for this model; None if it converts none."""
    return _FAMILIES.get(layout.model_type)


def converted(config: LoraConfig, layout: BaseLayout, budget: Budget) -> LoraConfig:
    """Return the config in the current names; raises AdapterRejected where PEFT cannot convert it."""
    family = family_of(layout)
    if family is None:
        return config
    old = family.parameters
    targets = _leaf_names(config, layout, family, budget)
    found = {target: next((name for name in old if f".{target}".endswith(f".{name}")), None) for target in targets}
    if config.target_modules and not found and not config.target_parameters:
        raise nothing_matched(config.target_modules, layout)
    names = {name for name in found.values() if name is not None}
    fused = [name for name in family.branches if name in names]
    if len(fused) == 1:
        (missing,) = set(family.branches) - set(fused)
        raise in_config(
            "target_modules",
            f"target_modules has {fused[0]} without {missing}, but both are one parameter in this "
            f"{layout.model_type} model; train with both or with neither.",
        )
    config = replace(
        config,
        target_modules=tuple(target for target, name in found.items() if name is None),
        target_parameters=tuple(sorted({*config.target_parameters, *(old[name] for name in names)})),
    )
    return _with_fused_sizes(config, len(fused)) if fused else config


def _with_fused_sizes(config: LoraConfig, branches: int) -> LoraConfig:
    """Return the config with the fused parameter's sizes: the sum of its branches' ranks, and their scaling."""
    pattern = rf".*\.{_FUSED}"
    return replace(
        config,
        rank_pattern=tuple((dict(config.rank_pattern) | {pattern: branches * config.r}).items()),
        alpha_pattern=tuple((dict(config.alpha_pattern) | {pattern: branches * config.lora_alpha}).items()),
    )


def _leaf_names(config: LoraConfig, layout: BaseLayout, family: Family, budget: Budget) -> tuple[str, ...]:
    """Return the targets as names: those listed, or the last components of all paths that a pattern matches."""
    if not isinstance(config.target_modules, str):
        return config.target_modules
    if is_all_linear(config.target_modules):
        head = layout.output_head
        linears = (m for m in layout.modules.values() if m.kind in (ModuleKind.LINEAR, ModuleKind.CONV1D))
        return tuple(dict.fromkeys([*(_leaf(m.name) for m in linears if m is not head), *family.parameters]))
    targeted = selector(config.target_modules, "target_modules", budget)
    excluded = selector(config.exclude_modules, "exclude_modules", budget)
    return tuple(dict.fromkeys(_leaf(path) for path in _paths(layout, family) if targeted(path) and not excluded(path)))


def _paths(layout: BaseLayout, family: Family) -> Iterator[str]:
    """Yield modules and parameters by their current names, then the experts' linears by their old names."""
    for module in layout.modules.values():
        yield from (module.name, f"{module.name}.weight")
    for parameter in layout.parameters.values():
        yield from (parameter.module, parameter.path)
    for old, new in family.parameters.items():
        for parameter in layout.parameters.values():
            if parameter.name == new:
                yield f"{parameter.module}.{old}"


def _leaf(path: str) -> str:
    return path.rsplit(".", 1)[-1]
