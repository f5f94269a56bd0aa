"""How a GPU's memory is divided, tested without one: the largest step is measured, and nothing is assigned twice."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import simulated_gpu
import torch

from loragate.engine.config import EngineConfig
from loragate.engine.execution.model_runner import LastTokens, forward
from loragate.engine.model.base_model import load_plain, prepare
from loragate.engine.startup import memory_profile as device_budget
from loragate.engine.startup import recorded_steps
from loragate.engine.startup.memory_profile import (
    GRAPH_SHARE,
    STEP_MARGIN,
    divide_memory,
    measured,
    step_bytes,
    trainer_share,
)

GB = 1 << 30


def test_the_largest_step_is_measured(tiny: Any, tmp_path: Path) -> None:
    config = EngineConfig(str(tiny.base), "", tmp_path, max_batch_tokens=40, max_batch_size=5, block_size=8)
    base = prepare(load_plain(tiny.base, config))
    base.allocate_cache(16)
    shape = recorded_steps.padded_shapes(base, config, 200, scratch=8)[-1]
    logits: list[tuple[int, ...]] = []

    def measure(function: Any) -> int:
        function()
        return 77

    def forwarded(batch: Any) -> Any:
        found = forward(base, LastTokens(5, base.device), batch)
        logits.append((batch.rows, *found.shape))
        return found

    assert step_bytes(base, shape, forwarded, measure) == 77
    assert logits == [(40, 5, 96)]


def test_no_memory_is_assigned_twice() -> None:
    budget = divide_memory(total=80 * GB, free=60 * GB, step=2 * GB, adapters=8 * GB)
    assert budget.adapters == 8 * GB
    taken = budget.kv + budget.adapters + 2 * GB * STEP_MARGIN + 80 * GB * GRAPH_SHARE
    assert 0.9 * 60 * GB < taken < 60 * GB


def test_a_trainer_on_the_same_gpu_keeps_its_share(tiny: Any, tmp_path: Path) -> None:
    """Its copy of the base model is as large as the engine's, and in single precision if that is."""
    config = EngineConfig(str(tiny.base), "", tmp_path)
    base = prepare(load_plain(tiny.base, config))
    weights = sum(each.nbytes for each in base.model.parameters())
    assert trainer_share(base, 0) == 0
    assert trainer_share(base, 8 * GB) == 8 * GB + weights
    alone = divide_memory(total=80 * GB, free=60 * GB, step=2 * GB, adapters=8 * GB)
    shared = divide_memory(total=80 * GB, free=60 * GB, step=2 * GB, adapters=8 * GB, trainer=24 * GB)
    assert (alone.kv - shared.kv, shared.adapters) == (24 * GB, 8 * GB)


def test_insufficient_memory_gives_nothing() -> None:
    assert divide_memory(total=8 * GB, free=2 * GB, step=2 * GB, adapters=GB).kv == 0


@pytest.mark.skipif(torch.cuda.is_available(), reason="stands in for a GPU")
def test_fragmented_memory_does_not_count_as_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch holds memory that is unused but in which no large allocation fits."""
    simulated_gpu.install(monkeypatch)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device=None: simulated_gpu.MEMORY // 4)
    monkeypatch.setattr(device_budget, "step_bytes", lambda *_: 0)
    asked: list[int] = []
    base = SimpleNamespace(device=simulated_gpu.GPU)
    budget = measured(base, None, None, lambda free: asked.append(free) or 0, None)  # type: ignore[arg-type, func-returns-value]
    assert asked == [simulated_gpu.MEMORY // 2]
    assert budget.kv < simulated_gpu.MEMORY // 2
