"""Parameters of the base model that PEFT saved with an adapter; they identify the base that it was trained on."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from loragate.engine.adapters.weights.linear import Read
from loragate.peft_format.errors import in_tensor
from loragate.peft_format.safetensors.header import TensorSpec

_AT_ONCE = 1 << 22


def check_base_copies(copies: Mapping[str, TensorSpec], model: nn.Module, read: Read) -> None:
    """Compare each copy with the model's own parameter of the same path. Raise AdapterRejected."""
    for path, spec in copies.items():
        if not _same(read(spec), model.get_parameter(path).data):
            raise in_tensor(
                spec.name,
                f"The adapter brings the {path} of the base model that it was trained on, and it differs from that of "
                "the model served here; train on this model, or name the module in modules_to_save.",
            )


def _same(copy: Tensor, own: Tensor) -> bool:
    """Return whether the two are equal except for rounding by a cast in either direction.

    They are compared in parts, because a whole head may not fit into a GPU's free memory.
    """
    if copy.shape != own.shape:
        return False
    there = back = True
    for theirs, ours in zip(copy.reshape(-1).split(_AT_ONCE), own.reshape(-1).split(_AT_ONCE), strict=True):
        theirs = theirs.to(ours.device)
        there = there and torch.equal(theirs.to(ours.dtype), ours)
        back = back and torch.equal(ours.to(theirs.dtype), theirs)
    return there or back
