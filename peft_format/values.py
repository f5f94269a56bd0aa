"""Whether an adapter's values are all finite: one NaN would answer every request with noise."""

from typing import BinaryIO

import numpy as np

from loragate.peft_format.errors import in_tensor, quoted
from loragate.peft_format.header import Header
from loragate.peft_format.streaming import chunks

# The exponent's bits. All of them set means infinity or NaN, in each of these formats.
_EXPONENTS: dict[str, tuple[str, int]] = {
    "F32": ("<u4", 0x7F80_0000),
    "F16": ("<u2", 0x7C00),
    "BF16": ("<u2", 0x7F80),
}


def check_finite(file: BinaryIO, header: Header) -> None:
    """Raises AdapterRefused naming the first tensor with a NaN or an infinity. Reads a megabyte at a time."""
    for spec in header.tensors.values():
        dtype, exponent = _EXPONENTS[spec.dtype]
        for chunk in chunks(file, spec):
            bits = np.frombuffer(chunk, dtype=dtype)
            if (bits & exponent).max() == exponent:
                raise in_tensor(
                    spec.name,
                    f"The tensor {quoted(spec.name)} holds NaN or infinity; train again.",
                )
