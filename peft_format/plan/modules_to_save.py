"""Plans for `modules_to_save`: modules that were trained in full and stand in for the base model's."""

from collections.abc import Collection, Iterator

from loragate.peft_format.config.lora_config import LoraConfig
from loragate.peft_format.errors import in_config, quoted
from loragate.peft_format.kinds import AdapterKind
from loragate.peft_format.plan import tensor_names as keys
from loragate.peft_format.plan.layout import BaseLayout, TargetModule
from loragate.peft_format.plan.plan import ReplacedModule
from loragate.peft_format.plan.servable import require, require_servable
from loragate.peft_format.plan.tensor_index import Tensors

_FIELD = "modules_to_save"


def plan_replaced(
    config: LoraConfig, layout: BaseLayout, changed: Collection[str], tensors: Tensors
) -> dict[str, ReplacedModule]:
    """The plans by module name, in the layout's order; raises AdapterRejected.

    `changed` are the modules that the adapter changes in another way already.
    """
    if config.modules_to_save:
        require(AdapterKind.REPLACED, layout, _FIELD)
    _check_bare_parameters(config, layout)
    names = frozenset(config.modules_to_save)
    saved = [module for module in layout.modules.values() if names & _ends(module.name)]
    for module in saved:
        if module.name in changed:
            raise in_config(_FIELD, f"{_FIELD} selects {module.name}, which the adapter changes otherwise as well.")
    return {module.name: _plan(module, tensors) for module in saved}


def unmatched_modules(config: LoraConfig, layout: BaseLayout) -> Iterator[str]:
    """A sentence for each name in modules_to_save that this model has no module for."""
    if not config.modules_to_save:
        return
    known = {*layout.modules, *(parameter.module for parameter in layout.parameters.values())}
    existing = set[str]().union(*map(_ends, known))
    for name in config.modules_to_save:
        if name not in existing:
            yield f"{_FIELD}: {quoted(name)} matches no module of this {layout.model_type} model."


def _ends(module: str) -> set[str]:
    """Every end of the module's name, and of the names of the blocks around it.

    PEFT takes all modules whose name ends with one of those given, be it within a word ("norm" takes
    "input_layernorm"), and saves all that is inside of them.
    """
    ends: set[str] = set()
    while module:
        ends.update(module[start:] for start in range(len(module)))
        module = module.rpartition(".")[0]
    return ends


def _check_bare_parameters(config: LoraConfig, layout: BaseLayout) -> None:
    names = frozenset(config.modules_to_save)
    for parameter in layout.parameters.values() if names else ():
        if names & _ends(parameter.module):
            raise in_config(
                _FIELD,
                f"{_FIELD} selects {parameter.module}, whose {parameter.name} cannot be replaced here; name single "
                "linears, embeddings or norms, and use target_parameters for experts and routers.",
            )


def _plan(module: TargetModule, tensors: Tensors) -> ReplacedModule:
    require_servable(module, _FIELD)
    shapes = {"weight": module.weight_shape} | ({"bias": (module.out_features,)} if module.bias else {})
    reason = f"{_FIELD} selects {module.name}"
    parameters = {
        name: tensors.take(keys.parameter(f"{module.name}.{name}"), shape, reason) for name, shape in shapes.items()
    }
    return ReplacedModule(module, parameters)
