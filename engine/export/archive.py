"""The archive: a tar file of the checkpoint's files, in which some tensors have other bytes than on the disk.

Headers, shapes and dtypes stay as they are, so all sizes are known before the first byte is computed.
"""

import tarfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from loragate.engine.export.checkpoint import Checkpoint, StoredTensor, WeightFile

PART_BYTES = 1 << 20

Change = Callable[[StoredTensor, bytearray], None]
"""Changes the bytes of a tensor in place."""


def archive_size(checkpoint: Checkpoint) -> int:
    """Return the size of the archive in bytes."""
    sizes = [path.stat().st_size for path in checkpoint.others] + [file.size for file in checkpoint.weights]
    return sum(tarfile.BLOCKSIZE + size + _padding(size) for size in sizes) + 2 * tarfile.BLOCKSIZE


def archive_parts(checkpoint: Checkpoint, changes: Mapping[str, Change]) -> Iterator[bytes]:
    """Yield the archive in parts of at most PART_BYTES; at most one changed tensor is in memory. Raise OSError."""
    for path in checkpoint.others:
        size = path.stat().st_size
        with path.open("rb") as file:
            yield _entry(path, size)
            yield from _range(file, 0, size)
            yield bytes(_padding(size))
    for weights in checkpoint.weights:
        yield _entry(weights.path, weights.size)
        yield from _weights(weights, changes)
        yield bytes(_padding(weights.size))
    yield bytes(2 * tarfile.BLOCKSIZE)


def _weights(weights: WeightFile, changes: Mapping[str, Change]) -> Iterator[bytes]:
    at = 0
    with weights.path.open("rb") as file:
        for tensor in weights.tensors:
            if tensor.name in changes:
                yield from _range(file, at, tensor.begin)
                yield from _changed(file, tensor, changes[tensor.name])
                at = tensor.end
        yield from _range(file, at, weights.size)


def _changed(file: BinaryIO, tensor: StoredTensor, change: Change) -> Iterator[bytes]:
    data = bytearray(tensor.end - tensor.begin)
    file.seek(tensor.begin)
    if file.readinto(data) < len(data):  # type: ignore[attr-defined]
        raise OSError("a file of the base model is shorter than its header says")
    change(tensor, data)
    for start in range(0, len(data), PART_BYTES):
        yield bytes(data[start : start + PART_BYTES])


def _range(file: BinaryIO, begin: int, end: int) -> Iterator[bytes]:
    file.seek(begin)
    for start in range(begin, end, PART_BYTES):
        wanted = min(PART_BYTES, end - start)
        part = file.read(wanted)
        if len(part) < wanted:
            raise OSError("a file of the base model is shorter than it was")
        yield part


def _entry(path: Path, size: int) -> bytes:
    entry = tarfile.TarInfo(path.name)
    entry.size = size
    header = entry.tobuf(tarfile.GNU_FORMAT)
    if len(header) != tarfile.BLOCKSIZE:
        raise OSError(f"the name of a file of the base model is too long: {path.name}")
    return header


def _padding(size: int) -> int:
    return -size % tarfile.BLOCKSIZE
