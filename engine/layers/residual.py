"""Fusion of residual sums into the norms that read them, one launch instead of two on a GPU.

A decoder layer with a norm before attention and one before its MLP returns h + mlp(second(h)) with
h = x + attention(first(x)). Class names say little of it, so each layer is run with its parts replaced by ones that
only return random numbers. If it passes on exactly what that formula does, to the last bit, its `forward` is replaced;
all other layers stay as they are.
"""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from loragate.engine.layers.rms_norm import FusedNorm, is_norm


@dataclass(frozen=True, slots=True)
class PreNorm:
    """The names of a layer's parts."""

    first: str
    attention: str
    second: str
    mlp: str


def fuse(layer: nn.Module, parts: PreNorm, following: FusedNorm | None) -> bool:
    """Make the layer compute its sums with its second norm and, if known, with the norm that reads what it returns;
    return whether it does."""
    if not isinstance(layer.get_submodule(parts.second), FusedNorm):
        return False
    layer.forward = partial(_forward, layer._modules, parts, following)
    return True


def _forward(
    modules: Mapping[str, Any], parts: PreNorm, following: FusedNorm | None, hidden_states: Tensor, **kwargs: Any
) -> Tensor:
    second = modules[parts.second]
    attended = modules[parts.attention](hidden_states=modules[parts.first](hidden_states), **kwargs)[0]
    total: Tensor = second.add(hidden_states, attended)
    out = _tensor(modules[parts.mlp](second(total)))
    return total + out if following is None else following.add(total, out)


def _tensor(out: Any) -> Tensor:
    """Return an MLP's output; some mixtures return their router's choices as well."""
    result: Tensor = out if isinstance(out, Tensor) else out[0]
    return result


class _Part(nn.Module):
    """Records what it is called with, and returns the same each time."""

    def __init__(self, result: Any) -> None:
        super().__init__()
        self.result = result
        self.calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        self.calls.append((args, kwargs))
        return self.result

    def called_with(self, *args: Any, **kwargs: Any) -> bool:
        """Return whether it was called once, with these very objects."""
        return [(list(map(id, a)), _ids(k)) for a, k in self.calls] == [(list(map(id, args)), _ids(kwargs))]


@torch.inference_mode()
def recognize(layer: nn.Module, attention: nn.Module, x: Tensor, kwargs: Mapping[str, Any]) -> PreNorm | None:
    """Return how the layer, which was called with x and `kwargs`, is made of norms, attention and an MLP, or None."""
    children = {name: child for name, child in layer.named_children() if not isinstance(child, nn.Dropout)}
    norms = [name for name, child in children.items() if is_norm(child)]
    mixers = [name for name, child in children.items() if child is attention]
    rest = children.keys() - {*norms, *mixers}
    if len(children) != 4 or len(norms) != 2 or len(mixers) != 1 or len(rest) != 1:
        return None
    for first, second in (norms, norms[::-1]):
        parts = PreNorm(first, mixers[0], second, *rest)
        if any(_computes(layer, parts, x, kwargs, extra) for extra in ((), (None,))):
            return parts
    return None


def _computes(
    layer: nn.Module, names: PreNorm, like: Tensor, kwargs: Mapping[str, Any], mlp_returns: tuple[None, ...]
) -> bool:
    x, normed, attended, normed_sum, out = _numbers(like)
    parts = {
        names.first: _Part(normed),
        names.attention: _Part((attended, None)),
        names.second: _Part(normed_sum),
        names.mlp: _Part((out, *mlp_returns) if mlp_returns else out),
    }
    other = copy.copy(layer)
    other._modules = {**layer._modules, **parts}
    try:
        result = other.forward(x, **kwargs)
    except (AttributeError, IndexError, RuntimeError, TypeError, ValueError):
        return False
    total, summed = x + attended, parts[names.second].calls
    return (
        parts[names.first].called_with(x)
        and parts[names.attention].called_with(hidden_states=normed, **kwargs)
        and len(summed) == 1
        and _is_only(summed[0], total)
        and parts[names.mlp].called_with(normed_sum)
        and _equal(result, total + out)
    )


def _numbers(like: Tensor) -> Iterator[Tensor]:
    """Return random tensors, two of them with numbers that a layer might clamp."""
    random = torch.Generator().manual_seed(0)
    for index in range(5):
        numbers = 8 * torch.randn(like.shape, generator=random)
        if index in (2, 4):
            numbers[..., 0] = torch.inf
        yield numbers.to(like)


def _is_only(call: tuple[tuple[Any, ...], dict[str, Any]], expected: Tensor) -> bool:
    (args, kwargs) = call
    return len(args) == 1 and not kwargs and _equal(args[0], expected)


def _equal(found: Any, expected: Tensor) -> bool:
    return isinstance(found, Tensor) and found.dtype == expected.dtype and torch.equal(found, expected)


def _ids(named: Mapping[str, Any]) -> dict[str, int]:
    return {name: id(value) for name, value in named.items()}
