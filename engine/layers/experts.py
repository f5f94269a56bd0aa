"""Mixture-of-experts layers that add each row's own adapter, behind transformers' experts interface.

The function registered here computes what the interface prescribes for any model: an up projection (fused with the
gate's), the model's own activation, a down projection, and the sum weighted by the router. An adapter's update enters
each projection before the activation and the weighting, which is where W + scaling · B · A would put it.
"""

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from transformers.integrations.moe import ExpertsInterface

from loragate.engine.layers.forward_context import ForwardContext
from loragate.kernels.expert_weights import ExpertFactors
from loragate.kernels.segmented_experts import ExpertTable, Routing, StackedLinear
from loragate.kernels.segments import FixedSegments

IMPLEMENTATION = "loragate_experts"
_STATE = "_loragate_experts"


@dataclass(eq=False, slots=True)
class ExpertProjection:
    """One stacked parameter of a mixture: the base model's weights, and the adapters resident for it."""

    name: str
    linear: StackedLinear
    adapters: ExpertTable

    def output(self, x: Tensor, routing: Routing) -> Tensor:
        """Compute x [routed, in] → [routed, out]."""
        y = self.linear(x, routing)
        self.adapters.add(y, x, routing)
        return y

    def put(self, slot: int, patch: ExpertFactors) -> None:
        self.adapters.put(slot, patch)

    def clear(self, slot: int) -> None:
        self.adapters.clear(slot)


@dataclass(frozen=True, slots=True)
class ExpertsState:
    """One mixture's projections, reachable from the module that transformers passes."""

    context: ForwardContext
    up: ExpertProjection
    down: ExpertProjection

    def route(self, chosen: Tensor) -> Routing:
        segments, reserved = self.context.batch.segments_for(chosen.shape[0]), self.up.adapters.reserved
        adapted = isinstance(segments, FixedSegments) or self.up.adapters.weights or self.down.adapters.weights
        return self.up.linear.route(chosen, segments if adapted else (), reserved)


def is_mixture(model: nn.Module) -> bool:
    """Return whether a router chooses the experts that compute a row."""
    return any(getattr(module, "num_experts", 0) > 1 for module in model.modules())


def attach(module: Any, context: ForwardContext) -> tuple[ExpertProjection, ExpertProjection]:
    """Take over an experts module's weights; only their shapes remain in its parameters."""
    up = _take(module, "gate_up_proj" if module.has_gate else "up_proj")
    down = _take(module, "down_proj")
    object.__setattr__(module, _STATE, ExpertsState(context, up, down))
    return up, down


def _take(module: Any, name: str) -> ExpertProjection:
    stored: Tensor = getattr(module, name).data
    weights = stored.transpose(1, 2) if module.is_transposed else stored
    biases = getattr(module, f"{name}_bias").data if module.has_bias else None
    linear = StackedLinear(weights, biases)
    setattr(module, name, nn.Parameter(stored.to("meta"), requires_grad=False))  # otherwise a CPU would hold them twice
    return ExpertProjection(name, linear, ExpertTable())


def routed_experts(module: Any, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
    """Compute hidden_states [rows, hidden] with the router's choice and weights [rows, top_k] → [rows, hidden]."""
    state: ExpertsState = getattr(module, _STATE)
    routing = state.route(top_k_index)
    y = state.up.output(hidden_states[routing.rows], routing)
    y = module._apply_gate(y) if module.has_gate else module.act_fn(y)
    y = state.down.output(y, routing)
    if getattr(module, "has_post_expert_norm", False):  # older versions of transformers do not have the attribute
        y = module.post_expert_norm(y)
    y = y * top_k_weights.reshape(-1)[routing.order, None]
    by_row = y.new_empty(y.shape).index_copy_(0, routing.order, y)
    return by_row.view(*top_k_index.shape, -1).sum(dim=1).to(hidden_states.dtype)


ExpertsInterface.register(IMPLEMENTATION, routed_experts)
