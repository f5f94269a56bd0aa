"""Plans for `target_parameters`: LoRA on a parameter itself, which is how mixtures store experts and routers."""

from collections.abc import Collection, Iterable, Iterator
from itertools import groupby

from loragate.peft_format.config.lora_config import LoraConfig
from loragate.peft_format.errors import in_config, quoted
from loragate.peft_format.kinds import AdapterKind
from loragate.peft_format.plan import tensor_names as keys
from loragate.peft_format.plan.layout import BaseLayout, BaseParameter, ModuleKind, TargetModule
from loragate.peft_format.plan.low_rank import plan_linear
from loragate.peft_format.plan.mixture import family_of
from loragate.peft_format.plan.plan import Branch, ModulePlan, ParameterPlan, SplitFactors, StackedFactors
from loragate.peft_format.plan.scaling import Sizes
from loragate.peft_format.plan.servable import require, require_servable
from loragate.peft_format.plan.targets import dotted_suffixes
from loragate.peft_format.plan.tensor_index import Tensors

_FIELD = "target_parameters"


def plan_parameters(
    config: LoraConfig, layout: BaseLayout, targeted: Collection[TargetModule], sizes: Sizes, tensors: Tensors
) -> tuple[dict[str, ParameterPlan], dict[str, ModulePlan]]:
    """Return the plans by path; a linear's weight becomes a plan for the linear, by name. Raise AdapterRejected.

    `targeted` are the modules that already have LoRA.
    """
    bare, linears = selected_parameters(config, layout)
    if bare or linears:
        _check_combinations(config)
    parameters = {}
    for _, siblings in groupby(bare, key=lambda parameter: parameter.module):
        for parameter, wrapped in _nested(list(siblings)):
            parameters[parameter.path] = _plan(parameter, wrapped, layout, sizes, tensors)
    modules = {
        module.name: plan_linear(_linear(module, targeted), f"{module.name}.weight", config, layout, sizes, tensors)
        for module in linears
    }
    return parameters, modules


def selected_parameters(config: LoraConfig, layout: BaseLayout) -> tuple[list[BaseParameter], list[TargetModule]]:
    """Return the bare parameters that `target_parameters` selects, and the linears whose weight it selects."""
    names = frozenset(config.target_parameters)
    bare = [
        parameter for parameter in layout.parameters.values() if not names.isdisjoint(dotted_suffixes(parameter.path))
    ]
    return bare, [m for m in layout.modules.values() if not names.isdisjoint(dotted_suffixes(f"{m.name}.weight"))]


def unmatched_parameters(config: LoraConfig, layout: BaseLayout) -> Iterator[str]:
    """Yield a sentence for each name in target_parameters that matches no parameter of this model."""
    paths = [*layout.parameters, *(f"{name}.weight" for name in layout.modules)]
    existing = {suffix for path in paths for suffix in dotted_suffixes(path)}
    for name in sorted(set(config.target_parameters) - existing):
        yield f"{_FIELD}: {quoted(name)} matches no parameter of this {layout.model_type} model."


def _check_combinations(config: LoraConfig) -> None:
    for field in ("lora_bias", "use_dora", "use_bdlora", "alora_invocation_tokens"):
        if getattr(config, field):
            raise in_config(field, f"{field} cannot be combined with {_FIELD} in PEFT; leave one of them out.")


def _nested(siblings: list[BaseParameter]) -> Iterator[tuple[BaseParameter, str]]:
    """Yield each parameter with the name of the module that PEFT wraps around it; the first is wrapped innermost."""
    for position, parameter in enumerate(siblings, start=1):
        yield parameter, parameter.module + ".base_layer" * (len(siblings) - position)


def _linear(module: TargetModule, targeted: Collection[TargetModule]) -> TargetModule:
    if module in targeted:
        raise in_config(_FIELD, f"{_FIELD} and target_modules both select {module.name}; leave it out of one.")
    if module.kind is not ModuleKind.LINEAR:
        raise in_config(
            _FIELD, f"{_FIELD} selects the weight of {module.name}, which is not a linear; use target_modules for it."
        )
    return module


def _plan(parameter: BaseParameter, wrapped: str, layout: BaseLayout, sizes: Sizes, tensors: Tensors) -> ParameterPlan:
    require(AdapterKind.PARAMETERS, layout, _FIELD, parameter.path)
    require_servable(parameter, _FIELD)
    if len(parameter.shape) not in (2, 3):
        raise in_config(_FIELD, f"{_FIELD} selects {parameter.path}, which is not a matrix; leave it out.")
    experts = parameter.shape[0] if len(parameter.shape) == 3 else 1
    columns, rows = parameter.shape[-1], parameter.shape[-2]
    inputs, outputs = (rows, columns) if parameter.transposed and len(parameter.shape) == 3 else (columns, rows)
    rank, scaling = sizes.of(parameter.path)
    parts = _parts(parameter, layout, tensors)
    reason = f"{_FIELD} selects {parameter.path} ({experts} experts, {inputs} in, {outputs} out)"
    if parts:
        factors: StackedFactors | SplitFactors = _split(parameter, parts, (rank, inputs, outputs), reason, tensors)
    else:
        factors = StackedFactors(
            lora_a=tensors.take(keys.lora_a(wrapped), (experts * rank, inputs), reason),
            lora_b=tensors.take(keys.lora_b(wrapped), (outputs, rank * experts), reason),
        )
    return ParameterPlan(parameter, experts, inputs, outputs, rank, scaling, factors)


def _parts(parameter: BaseParameter, layout: BaseLayout, tensors: Tensors) -> tuple[str, ...]:
    """Return the linears of one expert in the layout of transformers 4; empty if the file has another layout."""
    family = family_of(layout)
    parts = family.parts(parameter) if family else ()
    return parts if any(keys.lora_a(f"{parameter.module}.0.{part}") in tensors for part in parts) else ()


def _split(
    parameter: BaseParameter, parts: Iterable[str], sizes: tuple[int, int, int], reason: str, tensors: Tensors
) -> SplitFactors:
    names = tuple(parts)
    rank, inputs, outputs = sizes
    if rank % len(names):
        raise in_config("r", f"The rank on {parameter.path} is {rank}, which {' and '.join(names)} cannot share.")
    rank, outputs = rank // len(names), outputs // len(names)

    def branch(expert: int, position: int) -> Branch:
        linear = f"{parameter.module}.{expert}.{names[position]}"
        return Branch(
            lora_a=tensors.take(keys.lora_a(linear), (rank, inputs), reason),
            lora_b=tensors.take(keys.lora_b(linear), (outputs, rank), reason),
            out_start=position * outputs,
        )

    return SplitFactors(
        tuple(tuple(branch(expert, position) for position in range(len(names))) for expert in range(parameter.shape[0]))
    )
