"""Two kernels of one thread block: one that fits in registers, and one that cannot."""

from collections.abc import Iterator

import triton
import triton.language as tl

from loragate.kernels.gpu.variant import POINTERS, Variant


@triton.jit
def sort_kernel(x, out, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Compare every number of a column with every other."""
    row, column = tl.arange(0, SIZE)[:, None], tl.arange(0, 32)[None, :]
    numbers = tl.load(x + row * 32 + column)
    for step in range(3):
        numbers = numbers * tl.sum(numbers, axis=0)[None, :] + tl.load(x + step + row * 32 + column)
    tl.store(out + row * 32 + column, numbers)


def variants() -> Iterator[Variant]:
    pointers = dict.fromkeys(("x", "out"), POINTERS["float32"])
    for name, size in (("fits", 32), ("spills", 256)):
        yield Variant(name, sort_kernel, pointers, {"SIZE": size}, read_bytes=1, flops=1, warps=1)
