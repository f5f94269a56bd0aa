"""Plans for `modules_to_save`: fully trained modules that replace the base model's."""

from collections.abc import Collection, Iterator

from loragate.peft_format.classification import HEAD_NAMES
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
    """Return the plans by module name, in the layout's order; raises AdapterRejected.

    `changed` are the modules that the adapter already changes in another way.
    """
    if config.modules_to_save:
        require(AdapterKind.REPLACED, layout, _FIELD)
    _check_bare_parameters(config, layout)
    saved = saved_modules(config, layout)
    for module in saved:
        if module.name in changed:
            raise in_config(_FIELD, f"{_FIELD} selects {module.name}, which the adapter also changes in another way.")
    return {module.name: _plan(module, tensors) for module in saved}


def saved_modules(config: LoraConfig, layout: BaseLayout) -> list[TargetModule]:
    """Return the modules that `modules_to_save` selects."""
    names = frozenset(config.modules_to_save)
    return [module for module in layout.modules.values() if names & _ends(module.name)] if names else []


def unmatched_modules(config: LoraConfig, layout: BaseLayout) -> Iterator[str]:
    """Yield a sentence for each name in modules_to_save that matches no module of this model."""
    if not config.modules_to_save:
        return
    known = {*layout.modules, *(parameter.module for parameter in layout.parameters.values())}
    existing = set[str]().union(*map(_ends, known))
    expected = HEAD_NAMES if config.task_type else ()
    for name in config.modules_to_save:
        if name not in existing and name not in expected:
            yield f"{_FIELD}: {quoted(name)} matches no module of this {layout.model_type} model."


def _ends(module: str) -> set[str]:
    """Return every end of the module's name, and of the names of the blocks around it.

    PEFT takes all modules whose name ends with one of the given names, even within a word ("norm" takes
    "input_layernorm"), and saves everything inside them.
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
