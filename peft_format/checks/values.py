"""Checks that an adapter's values are finite, since one NaN would turn every response into noise, and equal where
they are tied. `bounds` checks their size."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from loragate.peft_format.errors import TENSOR_FILE, AdapterRejected, in_tensor, quoted
from loragate.peft_format.plan.plan import TiedPair
from loragate.peft_format.safetensors.header import Header, TensorSpec
from loragate.peft_format.safetensors.streaming import chunks

# The exponent's bits. All of them set means infinity or NaN, in each of these formats.
_EXPONENTS: dict[str, tuple[str, int]] = {
    "F32": ("<u4", 0x7F80_0000),
    "F16": ("<u2", 0x7C00),
    "BF16": ("<u2", 0x7F80),
}

_PIECE_BYTES = 1 << 20


def largest_values(file: BinaryIO, header: Header) -> Mapping[str, float]:
    """Return the largest magnitude in each tensor, by the tensor's name. Reads a megabyte at a time.

    Raise AdapterRejected naming the first tensor with a NaN or an infinity.
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
    """Raise AdapterRejected naming the first tensor whose bits differ from those of the tensor it is tied to.

    Reads a megabyte at a time.
    """
    for pair in pairs:
        if not _is_equal(file, pair):
            raise in_tensor(
                pair.second.name,
                f"The tensor {quoted(pair.second.name)} differs from {quoted(pair.first.name)}, to which "
                "ensure_weight_tying ties it; set ensure_weight_tying to false if they are meant to differ.",
            )


def _is_equal(file: BinaryIO, pair: TiedPair) -> bool:
    first, second = pair.first, pair.second
    shape = first.shape[::-1] if pair.transposed else first.shape
    if first.dtype != second.dtype or tuple(shape) != tuple(second.shape):
        return False
    if pair.transposed:
        rows, columns = (first, second) if first.shape[0] >= first.shape[1] else (second, first)
        return all(np.array_equal(tile, other) for tile, other in _tiles(file, rows, columns))
    read_first, read_second = _read_at(file, first), _read_at(file, second)
    size = first.end - first.begin
    pieces = ((at, min(_PIECE_BYTES, size - at)) for at in range(0, size, _PIECE_BYTES))
    return all(read_first(*piece) == read_second(*piece) for piece in pieces)


def _tiles(
    file: BinaryIO, rows: TensorSpec, columns: TensorSpec
) -> Iterator[tuple[NDArray[np.unsignedinteger], NDArray[np.unsignedinteger]]]:
    """Yield blocks of the rows of one matrix, transposed, and the same blocks of the columns of its transpose."""
    dtype = np.dtype(_EXPONENTS[rows.dtype][0])
    count, width = rows.shape
    step = max(1, _PIECE_BYTES // (width * dtype.itemsize))
    read_rows, read_columns = _read_at(file, rows), _read_at(file, columns)
    for start in range(0, count, step):
        size = min(step, count - start)
        tile = read_rows(start * width * dtype.itemsize, size * width * dtype.itemsize)
        strips = [read_columns((line * count + start) * dtype.itemsize, size * dtype.itemsize) for line in range(width)]
        yield (
            np.frombuffer(tile, dtype).reshape(size, width).T,
            np.frombuffer(b"".join(strips), dtype).reshape(width, size),
        )


def _read_at(file: BinaryIO, spec: TensorSpec) -> Callable[[int, int], bytes]:
    """Return a function that reads so many bytes of the tensor from an offset on. It raises AdapterRejected."""

    def read(offset: int, size: int) -> bytes:
        file.seek(spec.begin + offset)
        found = file.read(size)
        if len(found) < size:
            raise AdapterRejected(f"{TENSOR_FILE} is truncated.", TENSOR_FILE)
        return found

    return read
