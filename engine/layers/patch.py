"""The changes of an adapter: a patch for each module of the base model that it changes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, Self

import torch
from torch import Tensor

from loragate.kernels.memory_advice import prefer_huge_pages

ALIGNMENT = 64  # bytes: a cache line, and a vector register


class Patch(Protocol):
    """One adapter's weights for one module, on any device."""

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All tensors, contiguous, in a fixed order."""
        ...

    def on(self, tensors: Sequence[Tensor]) -> Self:
        """Return the same patch with copies of its tensors, given in that order."""
        ...


class Patchable(Protocol):
    """A module of the base model that holds, by slot, the patches of the adapters on the device."""

    def put(self, slot: int, patch: Any) -> None: ...

    def clear(self, slot: int) -> None:
        """Remove the patch in the slot, if any."""
        ...


@dataclass(frozen=True)
class HostAdapter:
    """An adapter in host memory, laid out as on the device: one run of bytes per patched module, side by side in
    `memory`.

    With `invocation` tokens it is active from where these last begin in the prompt (`sequence.active_from`).
    """

    patches: Mapping[Patchable, Patch]
    memory: Tensor
    token_cost: float = 1.0  # see `adapters.token_cost`
    invocation: tuple[int, ...] | None = None
    full_weight_bytes: int = 0  # of modules whose full weights the adapter contains
    rank: int = 0  # the largest of its modules

    @cached_property
    def sizes(self) -> list[int]:
        """The bytes of each run."""
        return [run_size(patch.tensors) for patch in self.patches.values()]

    @property
    def nbytes(self) -> int:
        return sum(self.sizes)


def run_size(tensors: Sequence[Tensor]) -> int:
    """Return the bytes that the tensors take side by side, each at an aligned offset."""
    return sum(_aligned(t.nbytes) for t in tensors)


def views(memory: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """Return tensors of the same dtypes and shapes, side by side in `memory` [bytes], uint8."""
    out, start = [], 0
    for tensor in like:
        flat = memory[start : start + tensor.nbytes].view(tensor.dtype)
        out.append(flat.view(tensor.shape))
        start += _aligned(tensor.nbytes)
    return out


def pack(patches: Mapping[Patchable, Patch]) -> HostAdapter:
    """Move all tensors into one allocation."""
    total = sum(run_size(patch.tensors) for patch in patches.values())
    memory = torch.empty(total, dtype=torch.uint8)
    prefer_huge_pages(memory)
    packed: dict[Patchable, Patch] = {}
    start = 0
    for module, patch in patches.items():
        size = run_size(patch.tensors)
        packed[module] = patch.on(_copied(patch.tensors, memory[start : start + size]))
        start += size
    return HostAdapter(packed, memory)


def _copied(tensors: Sequence[Tensor], memory: Tensor) -> list[Tensor]:
    """Copy the tensors into `memory` [bytes] side by side, and return the copies."""
    targets = views(memory, tensors)
    for target, source in zip(targets, tensors, strict=True):
        target.copy_(source)
    return targets


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
