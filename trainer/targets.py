"""The modules that training can change, by their role, as the engine's trace finds them."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import nn
from transformers import PreTrainedModel

from loragate.engine.layers.lora_linear import linear_shape
from loragate.engine.model.tracing import Trace
from loragate.peft_format.plan.layout import BaseLayout
from loragate.peft_format.plan.mixture import family_of

ROLES = ("attn", "mlp", "unembed")


@dataclass(frozen=True, slots=True)
class Targets:
    """Linear modules with LoRA.

    Attributes:
        by_role: names under "attn", "mlp" and "unembed", in the model's order.
        groups: names of modules that get the same input, in the model's order; other siblings are not in them.
        shapes: (out, in) by name.
    """

    by_role: Mapping[str, tuple[str, ...]]
    groups: tuple[tuple[str, ...], ...]
    shapes: Mapping[str, tuple[int, int]]


def find_targets(model: PreTrainedModel, traced: Trace, layout: BaseLayout) -> Targets:
    """Return the linears of attention and MLPs inside the layers, and the head.

    Routers and gates beside experts, and stacked experts, are not among them; nor are linears with names that PEFT
    takes for experts in this kind of model.
    """
    names = {module: name for name, module in model.named_modules()}
    modules = dict(model.named_modules())
    attention = tuple(f"{names[layer.module]}." for layer in traced.attention)
    layers = tuple(f"{name}." for name in layer_names(model, traced))
    mixtures = {names[module].rpartition(".")[0] for module in traced.experts}
    head = names.get(model.get_output_embeddings(), "")
    family = family_of(layout)
    reserved = frozenset(name.rpartition(".")[2] for name in family.parameters) if family else frozenset()

    def role(name: str) -> str | None:
        if name == head:
            return "unembed"
        if name.startswith(attention):
            return "attn"
        parent, _, last = name.rpartition(".")
        return "mlp" if name.startswith(layers) and parent not in mixtures and last not in reserved else None

    found = {name: role(name) for group in traced.groups for name in group}
    groups = tuple(tuple(name for name in group if found[name]) for group in traced.groups)
    return Targets(
        {each: tuple(name for name, kind in found.items() if kind == each) for each in ROLES},
        tuple(group for group in groups if group),
        {name: linear_shape(modules[name]) for name, kind in found.items() if kind},
    )


def layer_names(model: PreTrainedModel, traced: Trace) -> tuple[str, ...]:
    """Return the names of the decoder layers: the members of a module list around each attention module."""
    modules = dict(model.named_modules())
    names = {module: name for name, module in modules.items()}
    found: dict[str, None] = {}
    for layer in traced.attention:
        name = names[layer.module]
        while name and not isinstance(modules[name.rpartition(".")[0]], nn.ModuleList):
            name = name.rpartition(".")[0]
        if name:
            found[name] = None
    return tuple(found)
