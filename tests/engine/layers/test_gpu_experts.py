"""Experts on the Triton kernels, here in Triton's interpreter, equal transformers' own with each adapter merged into
them.
"""

import copy
import random
from typing import Any

import pytest
import torch
from tiny_models import make_model
from torch import Tensor

from loragate.engine.layers.experts import attach, routed_experts
from loragate.engine.layers.forward_context import ForwardContext, StepBatch
from loragate.kernels import gpu, segmented_experts
from loragate.kernels.expert_weights import ExpertFactors
from loragate.kernels.segments import segments_from

SLOTS = [-1, 0, 0, 1, 1, 1, 2]
TARGETS = {0: (True, True), 1: (True, False), 2: (False, True)}
"""By slot: whether its adapter changes the experts' projections up, and down."""
RANK = 4

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="patches kernels onto the CPU")


@pytest.fixture(autouse=True)
def kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs every device on the kernels, and rejects host reads of the router's choices."""
    monkeypatch.setattr(gpu, "serves", lambda device: True)
    monkeypatch.setattr(segmented_experts, "route", None)


@pytest.mark.parametrize("model_type", ["mixtral", "qwen3_moe", "gpt_oss"])
def test_outputs_equal_transformers(model_type: str) -> None:
    torch.manual_seed(0)
    own: Any = next(m for m in make_model(model_type).modules() if hasattr(m, "gate_up_proj"))
    experts, hidden = own.down_proj.shape[0], 32
    rng, rows = random.Random(0), len(SLOTS)
    chosen = torch.tensor([rng.sample(range(experts), 2) for _ in SLOTS])
    x, weights = torch.randn(rows, hidden), torch.rand(rows, 2)
    ours, step = copy.deepcopy(own), ForwardContext()
    projections = attach(ours, step)
    merged = {-1: own} | {slot: copy.deepcopy(own) for slot in TARGETS}
    for slot, targets in TARGETS.items():
        for projection, targeted in zip(projections, targets, strict=True):
            if targeted:
                linear = projection.linear
                a, b = torch.randn(experts, RANK, linear.in_features), torch.randn(experts, RANK, linear.out_features)
                projection.put(slot, ExpertFactors(a, b))
                delta = a.transpose(1, 2) @ b  # [experts, in, out]
                getattr(merged[slot], projection.name).data += delta if own.is_transposed else delta.transpose(1, 2)
    with step.running(batch(rows)):
        found = routed_experts(ours, x, chosen, weights)
    for row, slot in enumerate(SLOTS):
        expected = merged[slot](x[row : row + 1], chosen[row : row + 1], weights[row : row + 1])
        torch.testing.assert_close(found[row], expected[0], rtol=1e-4, atol=1e-4)


def batch(rows: int) -> StepBatch:
    nothing: Tensor = torch.zeros(rows, dtype=torch.int64)
    segments = segments_from(SLOTS)
    return StepBatch(nothing, nothing, nothing, None, (), segments, nothing, segments)
