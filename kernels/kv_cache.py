"""The keys and values of one layer, by place."""

import torch
from torch import Tensor

from loragate.kernels.memory_advice import prefer_huge_pages


class LayerCache:
    """Keys and values of one layer: [kv_heads, places, head_dim] each. Place 0 is the null place and always zero.

    The head is the slowest dimension so that gathering the places of a batch yields the operand of a batched matrix
    product without a further copy.
    """

    scales: Tensor | None = None  # [2, kv_heads, places]: scales of keys and of values, if quantized

    def __init__(
        self,
        places: int,
        kv_heads: int,
        key_dim: int,
        value_dim: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.keys = torch.zeros(kv_heads, places, key_dim, dtype=dtype, device=device)
        self.values = torch.zeros(kv_heads, places, value_dim, dtype=dtype, device=device)
        for part in (self.keys, self.values):
            prefer_huge_pages(part)

    def write(self, places: Tensor, keys: Tensor, values: Tensor) -> None:
        """Store keys and values [kv_heads, rows, dim] of new tokens at `places` [rows], with torch."""
        self.keys.index_copy_(1, places, keys)
        self.values.index_copy_(1, places, values)

    def gather(self, places: Tensor) -> tuple[Tensor, Tensor]:
        """Return keys and values at `places`: [kv_heads, places, dim]."""
        return self.keys.index_select(1, places), self.values.index_select(1, places)

    @property
    def numbers_per_place(self) -> int:
        """The number of elements that one token takes."""
        return sum(part.shape[0] * part.shape[2] for part in self.stored)

    @property
    def stored(self) -> tuple[Tensor, ...]:
        """All stored tensors, each [kv_heads, places, …] and of one dtype, in a form that can be copied as it is."""
        return self.keys, self.values

    def read_blocks(self, places: Tensor, blocks: int) -> Tensor:
        """Return everything at the places of `blocks` blocks of equal size, one block per row: [blocks, numbers]."""
        return torch.cat([_by_block(part.index_select(1, places), blocks) for part in self.stored], dim=1)

    def write_blocks(self, places: Tensor, rows: Tensor) -> None:
        """Store the result of `read_blocks` at other places."""
        kv_heads, blocks = self.keys.shape[0], rows.shape[0]
        size = places.shape[0] // blocks
        widths = [kv_heads * size * part.shape[2] for part in self.stored]
        for part, row in zip(self.stored, rows.split(widths, dim=1), strict=True):
            part.index_copy_(1, places, row.reshape(blocks, kv_heads, size, -1).transpose(0, 1).flatten(1, 2))


def _by_block(part: Tensor, blocks: int) -> Tensor:
    """Reshape [kv_heads, places, dim] → [blocks, kv_heads · places of a block · dim]."""
    by_block: Tensor = part.unflatten(1, (blocks, -1)).transpose(0, 1).flatten(1)
    return by_block
