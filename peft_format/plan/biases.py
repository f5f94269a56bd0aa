"""Plans for `bias`: the base model's own biases, trained along with the adapter."""

from collections.abc import Collection, Iterator

from loragate.peft_format.config.lora_config import LoraConfig
from loragate.peft_format.kinds import AdapterKind
from loragate.peft_format.plan import tensor_names as keys
from loragate.peft_format.plan.layout import BaseLayout, BaseParameter, TargetModule
from loragate.peft_format.plan.servable import require, require_servable
from loragate.peft_format.plan.tensor_index import Tensors
from loragate.peft_format.safetensors.header import TensorSpec

_FIELD = "bias"


def plan_biases(
    config: LoraConfig, layout: BaseLayout, wrapped: Collection[str], replaced: Collection[str], tensors: Tensors
) -> dict[str, TensorSpec]:
    """Return the biases by module name; raises AdapterRejected.

    `wrapped` are the modules with LoRA on them or on one of their parameters, and `replaced` those that have a trained
    bias of their own.
    """
    if config.bias == "none":
        return {}
    biases = {}
    for name, width, part in _biased(layout):
        if name in replaced or (config.bias == "lora_only" and name not in wrapped):
            continue
        require(AdapterKind.BIAS, layout, _FIELD)
        require_servable(part, _FIELD)
        path = f"{name}.base_layer.bias" if name in wrapped else f"{name}.bias"
        biases[name] = tensors.take(keys.parameter(path), (width,), f'bias is "{config.bias}"')
    return biases


def _biased(layout: BaseLayout) -> Iterator[tuple[str, int, TargetModule | BaseParameter]]:
    """Yield everything that has a bias: its name, the bias' width, and the part that must be servable."""
    for module in layout.modules.values():
        if module.bias:
            yield module.name, module.out_features, module
    for parameter in layout.parameters.values():
        if parameter.name == "bias" and len(parameter.shape) == 1:
            yield parameter.module, parameter.shape[0], parameter
