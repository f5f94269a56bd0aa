"""The base model's folder as transformers reads it: files of weights with their tensors, and all other files."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path

import torch

DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}
"""The dtypes of weights that an adapter can be merged into, by safetensors' names."""

_SINGLE = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_OTHERS = ("*.json", "*.jinja", "*.model", "*.txt", "LICENSE*", "NOTICE*")
_LENGTH_BYTES = 8


class CheckpointUnreadable(Exception):
    """The folder's files are not those of a checkpoint that can be exported."""


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor of the checkpoint; its bytes lie at [begin, end) of its file."""

    name: str
    dtype: str  # by safetensors' name
    shape: tuple[int, ...]
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class WeightFile:
    """A safetensors file of the checkpoint, with its tensors in the order of their bytes."""

    path: Path
    size: int
    tensors: tuple[StoredTensor, ...]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What `AutoModelForCausalLM.from_pretrained` and `AutoTokenizer.from_pretrained` read."""

    others: tuple[Path, ...]
    weights: tuple[WeightFile, ...]

    @property
    def tensors(self) -> Mapping[str, StoredTensor]:
        return {tensor.name: tensor for file in self.weights for tensor in file.tensors}


def read_checkpoint(folder: Path) -> Checkpoint:
    """Read which files the checkpoint has, and the headers of its weights. Raise CheckpointUnreadable and OSError.

    Files of weights that transformers does not load, such as copies in another format, are left out.
    """
    names = _weight_names(folder)
    index = {_INDEX} if names == [_SINGLE] else set()
    others = {path for pattern in _OTHERS for path in folder.glob(pattern) if path.is_file() and path.name not in index}
    return Checkpoint(tuple(sorted(others)), tuple(_read_file(folder / name) for name in names))


def _weight_names(folder: Path) -> list[str]:
    """Return the names of the files that transformers loads weights from."""
    if (folder / _SINGLE).is_file():
        return [_SINGLE]
    try:
        names = sorted(set(json.loads((folder / _INDEX).read_bytes())["weight_map"].values()))
    except (FileNotFoundError, ValueError, KeyError, AttributeError, TypeError):
        raise CheckpointUnreadable("its weights are neither one safetensors file nor shards with an index") from None
    if not names or any(Path(name).name != name for name in names):
        raise CheckpointUnreadable("the index of its weights names files outside of its folder")
    return names


def _read_file(path: Path) -> WeightFile:
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
        if length > size:
            raise CheckpointUnreadable(f"{path.name} is not a safetensors file")
        try:
            fields = json.loads(file.read(length))
        except ValueError:
            raise CheckpointUnreadable(f"{path.name} is not a safetensors file") from None
    fields.pop("__metadata__", None)
    tensors = sorted(_tensors(fields, _LENGTH_BYTES + length), key=lambda tensor: tensor.begin)
    return WeightFile(path, size, tuple(tensors))


def _tensors(fields: Mapping[str, Mapping[str, list[int]]], start: int) -> Iterator[StoredTensor]:
    for name, entry in fields.items():
        begin, end = (start + offset for offset in entry["data_offsets"])
        yield StoredTensor(name, str(entry["dtype"]), tuple(entry["shape"]), begin, end)


def as_tensor(tensor: StoredTensor, data: bytearray) -> torch.Tensor:
    """Return a tensor over `data`, its bytes; writing to one changes the other."""
    assert len(data) == prod(tensor.shape) * DTYPES[tensor.dtype].itemsize
    return torch.frombuffer(data, dtype=DTYPES[tensor.dtype]).view(tensor.shape)
