"""Checks that an adapter's values are finite, since one NaN would turn every response into noise, and equal where
they are tied. `bounds` checks their size."""

from collections.abc import Iterable, Mapping
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from loragate.peft_format.errors import in_tensor, quoted
from loragate.peft_format.plan.plan import TiedPair
from loragate.peft_format.safetensors.header import Header, TensorSpec
from loragate.peft_format.safetensors.streaming import chunks

# The exponent's bits. All of them set means infinity or NaN, in each of these formats.
_EXPONENTS: dict[str, tuple[str, int]] = {
    "F32": ("<u4", 0x7F80_0000),
    "F16": ("<u2", 0x7C00),
    "BF16": ("<u2", 0x7F80),
}


def largest_values(file: BinaryIO, header: Header) -> Mapping[str, float]:
    """Return the largest magnitude in each tensor, by the tensor's name. Reads a megabyte at a time.

    Raises AdapterRejected naming the first tensor with a NaN or an infinity.
    """
    return {spec.name: _largest(file, spec) for spec in header.tensors.values()}


def _largest(file: BinaryIO, spec: TensorSpec) -> float:
    dtype, exponent = _EXPONENTS[spec.dtype]
    # Without signs, finite numbers sort by their bits, and infinities and NaNs sort after them.
    unsigned = np.iinfo(dtype).max >> 1
    largest = max((int((np.frombuffer(chunk, dtype) & unsigned).max()) for chunk in chunks(file, spec)), default=0)
    if largest >= exponent:
        raise in_tensor(spec.name, f"The tensor {quoted(spec.name)} holds NaN or infinity; train again.")
    match spec.dtype:
        case "F16":
            return float(np.uint16(largest).view(np.float16))
        case "BF16":
            return float(np.uint32(largest << 16).view(np.float32))
        case _:
            return float(np.uint32(largest).view(np.float32))


def check_tied(file: BinaryIO, pairs: Iterable[TiedPair]) -> None:
    """Raise AdapterRejected naming the first tensor whose bits differ from those of the tensor it is tied to."""
    for pair in pairs:
        first, second = _bits(file, pair.first), _bits(file, pair.second)
        if pair.first.dtype != pair.second.dtype or not np.array_equal(first.T if pair.transposed else first, second):
            raise in_tensor(
                pair.second.name,
                f"The tensor {quoted(pair.second.name)} differs from {quoted(pair.first.name)}, to which "
                "ensure_weight_tying ties it; set ensure_weight_tying to false if they are meant to differ.",
            )


def _bits(file: BinaryIO, spec: TensorSpec) -> NDArray[np.unsignedinteger]:
    dtype, _ = _EXPONENTS[spec.dtype]
    return np.frombuffer(b"".join(chunks(file, spec)), dtype=dtype).reshape(spec.shape)
