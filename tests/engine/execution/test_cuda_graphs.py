"""Failed CUDA graph captures: the reported cause, and the state of torch's memory pools afterwards."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import simulated_gpu
import torch

from loragate.engine.execution.cuda_graphs import CudaGraphs

POOL = (0, 1)
pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="stands in for a GPU")


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return the pools for which torch was informed that the capture has ended."""
    simulated_gpu.install(monkeypatch)
    found: list[Any] = []
    monkeypatch.setattr(torch._C, "_cuda_endAllocateToPool", lambda *a: found.append(a), raising=False)

    @contextmanager
    def broken(*_: Any, stream: simulated_gpu.Stream, **__: Any) -> Iterator[None]:
        torch.cuda.set_stream(stream)  # type: ignore[arg-type]
        try:
            yield
        finally:  # as in torch, the stream is restored only after the end
            raise RuntimeError("operation failed due to a previous error during capture")

    monkeypatch.setattr(torch.cuda, "graph", broken)
    return found


def test_the_cause_is_reported_and_the_capture_abandoned(ended: list[Any]) -> None:
    calls, before = [], torch.cuda.current_stream()

    def launches() -> None:
        calls.append(0)
        if len(calls) == 2:  # the first time only warms up
            raise RuntimeError("operation not permitted when stream is capturing")

    with pytest.raises(RuntimeError, match="not permitted"):
        CudaGraphs(simulated_gpu.GPU, 1 << 30).record(launches)
    assert ended == [(0, POOL)]
    assert torch.cuda.current_stream() is before, "later launches of this thread would go to the capture's stream"


def test_a_capture_that_fails_only_at_its_end(ended: list[Any]) -> None:
    with pytest.raises(RuntimeError, match="previous error"):
        CudaGraphs(simulated_gpu.GPU, 1 << 30).record(lambda: None)
    assert ended == [(0, POOL)]
