"""The frozen experts of a mixture, behind transformers' experts interface, with the derivative by their input.

A row's experts are computed from copies of it, sorted by expert. Each expert gets a multiple of 16 rows, padded with
copies whose results are not used. A row's results are summed in the order in which its router chose them.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers.integrations.moe import ExpertsInterface

from loragate.trainer.products import ROW_ALIGNMENT, aligned, multiply

IMPLEMENTATION = "loragate_training_experts"


@dataclass(frozen=True, slots=True)
class Routing:
    """Slots, sorted by expert, for the pairs of a row and one of its experts.

    Attributes:
        pairs: [slots], the pair in each slot, a place in the router's choice [rows · top_k].
        slots: [rows · top_k], the slot of each pair.
        runs: the expert, and its slots [start, stop).
    """

    pairs: Tensor
    slots: Tensor
    top_k: int
    runs: tuple[tuple[int, int, int], ...]


def route(chosen: Tensor, experts: int) -> Routing:
    """Return the slots for the router's choice [rows, top_k]."""
    flat = chosen.reshape(-1)
    counts = torch.bincount(flat, minlength=experts).tolist()
    by_expert = flat.argsort(stable=True).split(counts)
    pairs, runs, start = [], [], 0
    for expert, places in enumerate(by_expert):
        missing = -len(places) % ROW_ALIGNMENT
        if len(places):
            pairs.append(torch.cat([places, places[-1:].expand(missing)]))
            runs.append((expert, start, start + len(places) + missing))
            start += len(places) + missing
    order = torch.cat(pairs)
    slots = torch.empty_like(flat)
    slots[order.flip(0)] = torch.arange(len(order) - 1, -1, -1, device=flat.device)  # of copies, the first counts
    return Routing(order, slots, chosen.shape[1], tuple(runs))


class _Gather(torch.autograd.Function):
    """Rows [rows, dim] → their copies in the slots [slots, dim]."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, routing: Routing) -> Tensor:
        ctx.routing = routing
        return x.index_select(0, routing.pairs // routing.top_k)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        routing: Routing = ctx.routing
        return _sum_choices(_by_pair(gradient, routing)), None


class _Scatter(torch.autograd.Function):
    """Slots [slots, dim] → results by row and choice [rows, top_k, dim]."""

    @staticmethod
    def forward(ctx: Any, y: Tensor, routing: Routing) -> Tensor:
        ctx.routing = routing
        return _by_pair(y, routing)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient.flatten(0, 1).index_select(0, ctx.routing.pairs), None


class _StackedProduct(torch.autograd.Function):
    """Slots [slots, in] → [slots, out], each with its expert's matrix of `weights` [experts, in, out]."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weights: Tensor, biases: Tensor | None, routing: Routing) -> Tensor:
        ctx.weights, ctx.routing = weights, routing
        parts = []
        for expert, start, stop in routing.runs:
            y = multiply(x[start:stop], weights[expert])
            parts.append(y if biases is None else y + biases[expert])
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        gradient = aligned(gradient)
        parts = [multiply(gradient[start:stop], ctx.weights[e].t()) for e, start, stop in ctx.routing.runs]
        return torch.cat(parts), None, None, None


def _by_pair(x: Tensor, routing: Routing) -> Tensor:
    return x.index_select(0, routing.slots).view(-1, routing.top_k, x.shape[-1])


def _sum_choices(x: Tensor) -> Tensor:
    """Return the sums over the choices [rows, top_k, dim], one by one."""
    total = x[:, 0]
    for choice in range(1, x.shape[1]):
        total = total + x[:, choice]
    return total


def routed_experts(module: Any, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
    """Compute hidden_states [rows, hidden] with the router's choice and weights [rows, top_k] → [rows, hidden]."""
    up = "gate_up_proj" if module.has_gate else "up_proj"
    routing = route(top_k_index, getattr(module, up).shape[0])
    x: Tensor = _Gather.apply(hidden_states, routing)  # type: ignore[no-untyped-call]
    y = _project(module, up, x, routing)
    y = module._apply_gate(y) if module.has_gate else module.act_fn(y)
    y = _project(module, "down_proj", y, routing)
    if getattr(module, "has_post_expert_norm", False):
        y = module.post_expert_norm(y)
    results: Tensor = _Scatter.apply(y, routing)  # type: ignore[no-untyped-call]
    return _sum_choices(results * top_k_weights[..., None]).to(hidden_states.dtype)


def _project(module: Any, name: str, x: Tensor, routing: Routing) -> Tensor:
    stored: Tensor = getattr(module, name).detach()
    weights = stored if module.is_transposed else stored.transpose(1, 2)
    biases = getattr(module, f"{name}_bias").detach() if module.has_bias else None
    y: Tensor = _StackedProduct.apply(x, weights, biases, routing)  # type: ignore[no-untyped-call]
    return y


ExpertsInterface.register(IMPLEMENTATION, routed_experts)
