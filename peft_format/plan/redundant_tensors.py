"""Tensors that PEFT saves although they change nothing; they are checked as far as possible."""

import re
from collections.abc import Iterator

from loragate.peft_format.kinds import AdapterKind
from loragate.peft_format.plan import tensor_names as keys
from loragate.peft_format.plan.layout import BaseLayout
from loragate.peft_format.plan.plan import AdapterPlan, TiedPair
from loragate.peft_format.plan.tensor_index import Tensors
from loragate.peft_format.safetensors.header import TensorSpec

# VeLoRA's projection and MonteCLoRA's sampler only matter while training.
_TRAINING = re.compile(r"\.(lora_velora_embed|lora_monteclora_sampler\.\w+)$")
_COPIES = ("base_layer.", "", "token_adapter.base_layer.")


def take_base_copies(layout: BaseLayout, plan: AdapterPlan, tensors: Tensors) -> dict[str, TensorSpec]:
    """Take the unchanged embedding and head (`save_embedding_layers`), by their path in the base model."""
    copies: dict[str, TensorSpec] = {}
    if AdapterKind.BASE_COPIES not in layout.serves:
        return copies
    for module in (layout.embedding, layout.output_head):
        if module is None or module.name in plan.replaced:
            continue
        shapes = {"weight": module.weight_shape} | ({"bias": (module.out_features,)} if module.bias else {})
        for name, shape in shapes.items():
            for infix in _COPIES:
                key = keys.parameter(f"{module.name}.{infix}{name}")
                if key in tensors:
                    path = f"{module.name}.{name}"
                    copies[path] = tensors.take(key, shape, f"it is a copy of the base model's {path}")
    return copies


def take_tied_rows(plan: AdapterPlan, tensors: Tensors) -> Iterator[TiedPair]:
    """Yield trained rows that were saved a second time, under a module that is tied to the trained one."""
    for tokens in plan.trained_tokens.values():
        for module in tokens.modules[1:]:
            key = keys.trained_rows(module.name)
            if key in tensors:
                rows = tensors.take(key, tokens.rows.shape, f"it is tied to {tokens.rows.name}")
                yield TiedPair(tokens.rows, rows, False)


def drop_redundant(plan: AdapterPlan, tensors: Tensors) -> None:
    """Drop tensors that only training needs, and the copies that PEFT saves beside a fully trained module."""
    saved = [*plan.replaced.values(), *([plan.classifier.head] if plan.classifier else [])]
    for module in saved:
        for parameter in module.parameters:
            for infix in ("modules_to_save", "original_module"):
                tensors.drop(keys.parameter(f"{module.module.name}.{infix}.{parameter}"))
    trained = {keys.parameter(module) for module in plan.modules}
    for name in tensors.left():
        found = _TRAINING.search(name)
        if found and name[: found.start()] in trained:
            tensors.drop(name)
