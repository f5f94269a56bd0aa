"""Plans for `modules_to_save`: modules that were trained in full and stand in for the base model's."""

from collections.abc import Collection, Iterator

from loragate.peft_format import keys
from loragate.peft_format.config import LoraConfig
from loragate.peft_format.errors import in_config, quoted
from loragate.peft_format.kinds import AdapterKind
from loragate.peft_format.layout import BaseLayout, TargetModule
from loragate.peft_format.plan import ReplacedModule
from loragate.peft_format.served import require, require_servable
from loragate.peft_format.tensors import Tensors

_FIELD = "modules_to_save"


def plan_replaced(
    config: LoraConfig, layout: BaseLayout, changed: Collection[str], tensors: Tensors
) -> dict[str, ReplacedModule]:
    """The plans by module name, in the layout's order; raises AdapterRefused.

    `changed` are the modules that the adapter changes in another way already.
    """
    if config.modules_to_save:
        require(AdapterKind.REPLACED, layout, _FIELD)
    _check_bare_parameters(config, layout)
    saved = [module for module in layout.modules.values() if _is_saved(module.name, config.modules_to_save)]
    for module in saved:
        if module.name in changed:
            raise in_config(_FIELD, f"{_FIELD} selects {module.name}, which the adapter changes otherwise as well.")
    return {module.name: _plan(module, tensors) for module in saved}


def unmatched_modules(config: LoraConfig, layout: BaseLayout) -> Iterator[str]:
    """A sentence for each name in modules_to_save that this model has no module for."""
    known = (*layout.modules, *(parameter.module for parameter in layout.parameters.values()))
    for name in config.modules_to_save:
        if not any(_is_saved(module, (name,)) for module in known):
            yield f"{_FIELD}: {quoted(name)} matches no module of this {layout.model_type} model."


def _is_saved(module: str, names: tuple[str, ...]) -> bool:
    """PEFT takes every module whose name ends like this, be it within a word ("norm" takes "input_layernorm"), with
    all that is inside it."""
    return any(block.endswith(names) for block in _blocks(module))


def _blocks(module: str) -> Iterator[str]:
    """ "a.b.c" gives "a.b.c", "a.b" and "a"."""
    while module:
        yield module
        module = module.rpartition(".")[0]


def _check_bare_parameters(config: LoraConfig, layout: BaseLayout) -> None:
    for parameter in layout.parameters.values():
        if _is_saved(parameter.module, config.modules_to_save):
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
