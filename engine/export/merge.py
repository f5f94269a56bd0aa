"""Merging of LoRA into the checkpoint's tensors, to the same bits as PEFT's `merge_and_unload` on a CPU.

PEFT loads an adapter in float32, adds scaling · (B · A) to a weight in place, and so rounds once, to the dtype of the
weight.
"""

from collections.abc import Mapping

import torch

from loragate.engine.adapters.weights.linear import Read
from loragate.engine.export.checkpoint import DTYPES, Checkpoint, StoredTensor, as_tensor
from loragate.peft_format.kinds import AdapterKind
from loragate.peft_format.plan.layout import BaseLayout, ModuleKind
from loragate.peft_format.plan.plan import AdapterPlan, ModulePlan

_MERGEABLE = frozenset({AdapterKind.BASE_COPIES})  # the trial before publication has compared them
_WORDS = {
    AdapterKind.DORA: "DoRA",
    AdapterKind.EMBEDDING: "LoRA on an embedding",
    AdapterKind.BLOCK_DIAGONAL: "block-diagonal LoRA",
    AdapterKind.PARAMETERS: "LoRA on experts or on other bare parameters",
    AdapterKind.REPLACED: "modules_to_save",
    AdapterKind.TRAINED_TOKENS: "trainable_token_indices",
    AdapterKind.BIAS: "trained biases",
    AdapterKind.ACTIVATED: "aLoRA, which changes no token before its invocation",
    AdapterKind.CLASSIFIER: "a head for labels",
}


class NotMergeable(Exception):
    """The adapter cannot be merged exactly; the message says why."""


def merged_modules(plan: AdapterPlan, layout: BaseLayout, checkpoint: Checkpoint) -> Mapping[str, ModulePlan]:
    """Return the LoRA of each tensor of the checkpoint that changes, by the tensor's name. Raise NotMergeable."""
    kinds = sorted(_WORDS[kind] for kind in plan.kinds - _MERGEABLE)
    if kinds:
        raise NotMergeable(f"The adapter uses {', '.join(kinds)}, which cannot be merged; download its files instead.")
    tensors = checkpoint.tensors
    return {_tensor_of(lora, layout, tensors): lora for lora in plan.modules.values()}


@torch.inference_mode()
def merge(stored: StoredTensor, data: bytearray, lora: ModulePlan, read: Read) -> None:
    """Merge `lora` into the bytes of a weight, in place."""
    delta = read(lora.lora_b).float() @ read(lora.lora_a).float()
    if lora.module.kind is ModuleKind.CONV1D:
        delta = delta.T
    weight = as_tensor(stored, data)
    weight += delta * lora.scaling


def _tensor_of(lora: ModulePlan, layout: BaseLayout, tensors: Mapping[str, StoredTensor]) -> str:
    """Return the name of the tensor that holds the module's weight. Raise NotMergeable."""
    name, module = lora.module.name, lora.module
    if lora.bias is not None:
        raise NotMergeable(f"The adapter has a bias on {name} (lora_bias), which cannot be merged.")
    head = layout.output_head
    if layout.tied_embeddings and head is not None and head.name == name:
        raise NotMergeable(
            f"The adapter changes {name}, which is tied to the input embedding: merged, it would change both."
        )
    shape = (module.out_features, module.in_features)
    wanted = shape[::-1] if module.kind is ModuleKind.CONV1D else shape
    for path in (name, name.partition(".")[2]):  # some checkpoints leave out the prefix of the model without its head
        stored = tensors.get(f"{path}.weight")
        if stored is not None and stored.shape == wanted and stored.dtype in DTYPES:
            return stored.name
    raise NotMergeable(
        f"The base model's checkpoint does not hold {name}.weight as {list(wanted)} in {', '.join(DTYPES)}, "
        "so nothing can be merged into it."
    )
