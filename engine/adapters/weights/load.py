"""Loading of an adapter's two files into a patch for each module that it changes."""

from dataclasses import replace
from math import prod
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor

from loragate.engine.adapters.token_cost import token_cost
from loragate.engine.adapters.weights.base_copies import check_base_copies
from loragate.engine.adapters.weights.linear import Dtypes, Read, linear_weights
from loragate.engine.adapters.weights.parameters import parameter_patches
from loragate.engine.adapters.weights.rows import row_patch
from loragate.engine.layers.classifier_head import HeadPatch
from loragate.engine.layers.patch import HostAdapter, Patch, Patchable, pack, run_size
from loragate.engine.model.base_model import BaseModel
from loragate.engine.runtime.copy_stream import aside
from loragate.peft_format.plan.layout import BaseLayout
from loragate.peft_format.plan.plan import AdapterPlan, ReplacedModule
from loragate.peft_format.read import AdapterReading, read_adapter
from loragate.peft_format.safetensors.header import TensorSpec

CONFIG_FILE = "adapter_config.json"
TENSORS_FILE = "adapter_model.safetensors"


def read_files(directory: Path, layout: BaseLayout) -> AdapterReading:
    """Check an adapter's two files against the base model. Raise peft_format's AdapterRejected."""
    path = directory / TENSORS_FILE
    with path.open("rb") as file:
        return read_adapter((directory / CONFIG_FILE).read_bytes(), file, path.stat().st_size, layout)


def load_adapter(directory: Path, plan: AdapterPlan, base: BaseModel, layout: BaseLayout) -> HostAdapter:
    """Return the adapter as the scheduler needs it: its weights, and the cost of its tokens. Raise AdapterRejected."""
    return replace(load_weights(directory, plan, base), token_cost=token_cost(plan, layout))


@torch.inference_mode()
def load_weights(directory: Path, plan: AdapterPlan, base: BaseModel) -> HostAdapter:
    """Read the tensors, precompute what does not depend on requests, and lay everything out. Raise AdapterRejected."""
    patches: dict[Patchable, Patch] = {}
    dtypes = Dtypes(small=base.adapter_dtype, whole=base.dtype)
    with safe_open(directory / TENSORS_FILE, framework="pt") as file, aside(base.device):

        def read(spec: TensorSpec) -> Tensor:
            tensor: Tensor = file.get_tensor(spec.name)
            return tensor

        check_base_copies(plan.base_copies, base.model, read)
        for group in base.groups:
            weights = linear_weights(group, plan, read, dtypes)
            if weights is not None:
                patches[group] = weights
        patches |= parameter_patches(plan.parameters, base.targets_by_parameter, file, base.adapter_dtype)
        for name, slot_module in base.slot_modules.items():
            patch = row_patch(name, slot_module.module, plan, read, base.adapter_dtype)
            if patch is not None:
                patches[slot_module] = patch
        if plan.classifier is not None:
            patches[base.heads] = _head_patch(plan.classifier.head, read)
        host = pack(patches)
    full = sum(prod(spec.shape) for module in plan.replaced.values() for spec in module.tensors) * base.dtype.itemsize
    head = 0 if plan.classifier is None else run_size(patches[base.heads].tensors)
    return replace(
        host,
        invocation=plan.invocation_tokens,
        full_weight_bytes=full + head,
        rank=plan.max_rank,
    )


def _head_patch(head: ReplacedModule, read: Read) -> HeadPatch:
    parameters = {name: read(spec).float() for name, spec in head.parameters.items()}
    return HeadPatch(parameters["weight"], parameters.get("bias"))
