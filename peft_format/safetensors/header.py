"""The safetensors header, read with bounds: https://huggingface.co/docs/safetensors/index#format

A file is an 8-byte little-endian length, that many bytes of JSON, and the tensors' bytes. The tensors must
fill the rest of the file without gap or overlap, so that every byte of an upload belongs to a tensor.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import BinaryIO

from loragate.peft_format.config.strict_json import Limits, parse_object
from loragate.peft_format.errors import TENSOR_FILE, AdapterRejected, in_tensor, quoted
from loragate.peft_format.safetensors.file_signature import SIGNATURE_BYTES, identify_file

# Adapters trained on transformers 4 have two tensors for each linear of each expert.
MAX_TENSORS = 49_152
_LENGTH_BYTES = 8
# A tensor takes five strings, six brackets and five commas.
_LIMITS = Limits(size=12 << 20, depth=3, values=20 * MAX_TENSORS)
_MAX_DIMENSIONS = 8
_DTYPE_BYTES = {"F32": 4, "F16": 2, "BF16": 2}
_METADATA = "__metadata__"


@dataclass(frozen=True)
class TensorSpec:
    """One tensor: its dtype by safetensors' name, and the offsets of its bytes in the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


@dataclass(frozen=True)
class Header:
    """The tensors of a file in the order of their bytes, its metadata, and the whole file's size in bytes."""

    tensors: Mapping[str, TensorSpec]
    metadata: Mapping[str, str]
    size: int


def read_header(file: BinaryIO, size: int) -> Header:
    """Read the header of a file of `size` bytes; raises AdapterRejected. Nothing after the header is read."""
    fields, start = _read_json(file, size)
    metadata = _metadata(fields.pop(_METADATA, {}))
    if not fields:
        raise AdapterRejected(f"{TENSOR_FILE} holds no tensors.", TENSOR_FILE)
    if len(fields) > MAX_TENSORS:
        raise AdapterRejected(
            f"{TENSOR_FILE} holds {len(fields)} tensors; at most {MAX_TENSORS} are read.", TENSOR_FILE
        )
    specs = sorted((_spec(name, entry, start) for name, entry in fields.items()), key=lambda s: (s.begin, s.end))
    _check_contiguous(specs, start, size)
    return Header({spec.name: spec for spec in specs}, metadata, size)


def header_bytes(start: bytes | bytearray, size: int) -> int | None:
    """Return how many bytes precede the tensors in a file of `size` bytes that starts with `start`; None while `start`
    is too short to know. Raise AdapterRejected."""
    if len(start) < min(_LENGTH_BYTES, size):
        return None
    length = int.from_bytes(start[:_LENGTH_BYTES], "little")
    if size < _LENGTH_BYTES or length > min(_LIMITS.size, size - _LENGTH_BYTES):
        raise AdapterRejected(f"{TENSOR_FILE} declares a header of {length} bytes, in a file of {size}.", TENSOR_FILE)
    return _LENGTH_BYTES + length


def _read_json(file: BinaryIO, size: int) -> tuple[dict[str, object], int]:
    """Return the header's object, and the offset of the first byte after it."""
    file.seek(0)
    prefix = file.read(_LENGTH_BYTES)
    if len(prefix) < _LENGTH_BYTES:
        raise AdapterRejected(f"{TENSOR_FILE} is too short to be a safetensors file.", TENSOR_FILE)
    length = int.from_bytes(prefix, "little")
    if length > min(_LIMITS.size, size - _LENGTH_BYTES):
        words = identify_file(prefix + file.read(SIGNATURE_BYTES)) or (
            f"declares a header of {length} bytes, in a file of {size}; at most {_LIMITS.size} are read. "
            "The file may be truncated, or not be a safetensors file"
        )
        raise AdapterRejected(f"{TENSOR_FILE} {words}.", TENSOR_FILE)
    raw = file.read(length)
    if len(raw) < length or not raw.startswith(b"{"):
        raise AdapterRejected(f"{TENSOR_FILE} is truncated, or has no JSON object as its header.", TENSOR_FILE)
    return parse_object(raw, _LIMITS, TENSOR_FILE), _LENGTH_BYTES + length


def _metadata(value: object) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise in_tensor(_METADATA, f"{_METADATA} in {TENSOR_FILE} must map strings to strings.")
    return value


def _spec(name: str, entry: object, start: int) -> TensorSpec:
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise in_tensor(name, f"The tensor {quoted(name)} must have exactly dtype, shape and data_offsets.")
    shape, offsets = _naturals(entry["shape"]), _naturals(entry["data_offsets"])
    if shape is None or len(shape) > _MAX_DIMENSIONS:
        raise in_tensor(
            name, f"The tensor {quoted(name)} has the shape {quoted(entry['shape'])}, which is not a shape."
        )
    if offsets is None or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise in_tensor(
            name,
            f"The tensor {quoted(name)} has the offsets {quoted(entry['data_offsets'])}, which are not offsets.",
        )
    spec = TensorSpec(name, _dtype(name, entry["dtype"]), shape, start + offsets[0], start + offsets[1])
    needed = prod(shape) * _DTYPE_BYTES[spec.dtype]
    if spec.end - spec.begin != needed:
        raise in_tensor(
            name,
            f"The tensor {quoted(name)} takes {spec.end - spec.begin} bytes, "
            f"but {spec.dtype} {list(shape)} needs {needed}.",
        )
    return spec


def _dtype(name: str, value: object) -> str:
    if not isinstance(value, str) or value not in _DTYPE_BYTES:
        raise in_tensor(
            name,
            f"The tensor {quoted(name)} is stored as {quoted(value)}; save it as one of {', '.join(_DTYPE_BYTES)}.",
        )
    return value


def _naturals(value: object) -> tuple[int, ...] | None:
    if not isinstance(value, list):
        return None
    if not all(isinstance(item, int) and not isinstance(item, bool) and item >= 0 for item in value):
        return None
    return tuple(value)


def _check_contiguous(specs: list[TensorSpec], start: int, size: int) -> None:
    """Raise AdapterRejected unless each of `specs` begins where the one before it ends, and the last ends the file."""
    at = start
    for spec in specs:
        if spec.begin != at:
            flaw = "overlaps the tensor before it" if spec.begin < at else "leaves a gap before it"
            raise in_tensor(spec.name, f"The tensor {quoted(spec.name)} {flaw} in {TENSOR_FILE}.")
        at = spec.end
    if at != size:
        raise AdapterRejected(f"{TENSOR_FILE} is {size} bytes long, but its tensors end at {at}.", TENSOR_FILE)
