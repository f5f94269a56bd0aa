"""A tensor's bytes, in chunks of bounded size."""

from collections.abc import Iterator
from typing import BinaryIO

from loragate.peft_format.errors import TENSOR_FILE, AdapterRejected
from loragate.peft_format.safetensors.header import TensorSpec

# A multiple of every item size, and small enough to stay in the processor's cache.
_CHUNK = 1 << 20


def chunks(file: BinaryIO, spec: TensorSpec) -> Iterator[bytes]:
    """Yield the bytes of `spec` in order, in whole items; raises AdapterRejected when the file ends too early."""
    file.seek(spec.begin)
    left = spec.end - spec.begin
    while left:
        size = min(_CHUNK, left)
        chunk = file.read(size)
        if len(chunk) < size:
            raise AdapterRejected(f"{TENSOR_FILE} is truncated.", TENSOR_FILE)
        yield chunk
        left -= size
