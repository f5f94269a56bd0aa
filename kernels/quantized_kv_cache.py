"""A KV cache with eight-bit numbers: the largest entry of each key and each value of a head scales it to the range.

One scale per token and head, for the key and for the value, loses the least for its cost (KVQuant, Hooper et al., 2024,
arXiv:2401.18079, compares others), and a token's numbers never depend on other tokens. Numbers are dequantized when a
step gathers them, so that attention computes in the model's dtype.
"""

import torch
from torch import Tensor

from loragate.kernels.kv_cache import LayerCache
from loragate.kernels.quantized_rows import quantize


class QuantizedLayerCache(LayerCache):
    """A cache whose `storage` is int8 or float8_e4m3fn; gathered tensors have the dtype `dtype`."""

    def __init__(
        self,
        places: int,
        kv_heads: int,
        key_dim: int,
        value_dim: int,
        dtype: torch.dtype,
        device: torch.device,
        storage: torch.dtype,
    ) -> None:
        super().__init__(places, kv_heads, key_dim, value_dim, storage, device)
        self.scales: Tensor = torch.zeros(2, kv_heads, places, dtype=torch.float32, device=device)
        self._dtype = dtype

    def write(self, places: Tensor, keys: Tensor, values: Tensor) -> None:
        for (part, scales), new in zip(self._parts(), (keys, values), strict=True):
            numbers, scale = quantize(new, part.dtype)
            _bytes(part).index_copy_(1, places, _bytes(numbers))
            scales.index_copy_(1, places, scale)

    @property
    def stored(self) -> tuple[Tensor, ...]:
        """All tensors as bytes."""
        return tuple(_bytes(part) for pair in self._parts() for part in pair)

    def gather(self, places: Tensor) -> tuple[Tensor, Tensor]:
        """Return keys and values at `places`: [kv_heads, places, dim]."""
        keys, values = (self._expand(part, scales, places) for part, scales in self._parts())
        return keys, values

    def _parts(self) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
        keys, values = self.scales.unsqueeze(-1)
        return (self.keys, keys), (self.values, values)

    def _expand(self, part: Tensor, scales: Tensor, places: Tensor) -> Tensor:
        numbers = _bytes(part).index_select(1, places).view(part.dtype).float()
        return (numbers * scales.index_select(1, places)).to(self._dtype)


def _bytes(tensor: Tensor) -> Tensor:
    """Return the same memory as integers, which every device can index."""
    return tensor.view(torch.uint8)
