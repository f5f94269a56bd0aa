"""A run's state as one safetensors file: its settings in the metadata, and factors, moments and gradient by module."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from loragate.trainer.adapter import Adapter, Buffer, LoraSettings, LoraShape, Shapes, empty_adapter
from loragate.trainer.errors import TrainingRejected
from loragate.trainer.targets import Targets

_FORMAT = "loragate.training_state.1"
_WEIGHTS, _GRADIENT, _MEAN, _SQUARE = "weights", "gradient", "mean", "square"


def write(adapter: Adapter) -> bytes:
    """Return the file; equal states are equal bytes, because safetensors would write several keys in any order."""
    buffers = {_WEIGHTS: adapter.buffer.flat}
    if adapter.gradient is not None:
        buffers[_GRADIENT] = adapter.gradient.flat
    if adapter.moments is not None:
        buffers |= zip((_MEAN, _SQUARE), adapter.moments, strict=True)
    tensors = {
        f"{part}/{name}/{factor}": value.cpu().contiguous()
        for part, flat in buffers.items()
        for name, a, b in adapter.layout.factors(flat)
        for factor, value in (("a", a), ("b", b))
    }
    shapes = {name: [shape.rank, shape.scaling] for name, shape in adapter.shapes.items()}
    facts = {"settings": asdict(adapter.settings), "modules": shapes, "steps": adapter.steps}
    return save(tensors, {_FORMAT: json.dumps(facts)})


def read(state: bytes, targets: Targets, device: torch.device, *, optimizer: bool, gradients: bool) -> Adapter:
    """Return the adapter of a file. Raise TrainingRejected for a damaged one, or of another base model."""
    try:
        tensors, facts = load(state), _facts(state)
        settings = LoraSettings(**facts["settings"])
        shapes = {name: LoraShape(int(rank), float(scaling)) for name, (rank, scaling) in facts["modules"].items()}
        steps = int(facts["steps"])
    except (SafetensorError, KeyError, ValueError, TypeError, AttributeError) as error:
        raise TrainingRejected(f"state: is not a training state of this program: {error}") from None
    _check(shapes, targets)
    adapter = empty_adapter(settings, shapes, targets, device)
    _fill(adapter, adapter.buffer.flat, tensors, _WEIGHTS)
    if optimizer and _has(tensors, _MEAN):
        adapter.moments = adapter.zeros(), adapter.zeros()
        for part, flat in zip((_MEAN, _SQUARE), adapter.moments, strict=True):
            _fill(adapter, flat, tensors, part)
        adapter.steps = steps
    if gradients and _has(tensors, _GRADIENT):
        flat = adapter.zeros()
        _fill(adapter, flat, tensors, _GRADIENT)
        adapter.gradient = Buffer(flat, adapter.layout.group_factors(flat))
    return adapter


def _facts(state: bytes) -> dict[str, Any]:
    size = int.from_bytes(state[:8], "little")
    facts: dict[str, Any] = json.loads(json.loads(state[8 : 8 + size])["__metadata__"][_FORMAT])
    return facts


def _check(shapes: Shapes, targets: Targets) -> None:
    for name in shapes:
        if name not in targets.shapes:
            raise TrainingRejected(f"state: {name} is not a module of this base model that is trained")


def _has(tensors: Mapping[str, Tensor], part: str) -> bool:
    return any(name.startswith(f"{part}/") for name in tensors)


def _fill(adapter: Adapter, flat: Tensor, tensors: Mapping[str, Tensor], part: str) -> None:
    for name, a, b in adapter.layout.factors(flat):
        for factor, place in (("a", a), ("b", b)):
            value = tensors.get(f"{part}/{name}/{factor}")
            if value is None or value.shape != place.shape or value.dtype != torch.float32:
                raise TrainingRejected(f"state: {part} of {name} are missing, or not those of this base model")
            place.copy_(value)
