"""A recording that cannot be made: why, and what torch goes on believing about it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gpu_by_name
import pytest
import torch

from loragate.engine.execution.cuda_graphs import CudaGraphs

POOL = (0, 1)
pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="stands in for a GPU")


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Of which pools torch was told that nothing is recorded into them any more."""
    gpu_by_name.install(monkeypatch)
    found: list[Any] = []
    monkeypatch.setattr(torch._C, "_cuda_endAllocateToPool", lambda *a: found.append(a), raising=False)

    @contextmanager
    def broken(*_: Any, **__: Any) -> Iterator[None]:
        try:
            yield
        finally:
            raise RuntimeError("operation failed due to a previous error during capture")

    monkeypatch.setattr(torch.cuda, "graph", broken)
    return found


def test_the_cause_is_told_and_the_recording_given_up(ended: list[Any]) -> None:
    calls = []

    def launches() -> None:
        calls.append(0)
        if len(calls) == 2:  # the first time only warms up
            raise RuntimeError("operation not permitted when stream is capturing")

    with pytest.raises(RuntimeError, match="not permitted"):
        CudaGraphs(gpu_by_name.GPU, 1 << 30).record(launches)
    assert ended == [(0, POOL)]


def test_a_recording_that_only_its_end_breaks(ended: list[Any]) -> None:
    with pytest.raises(RuntimeError, match="previous error"):
        CudaGraphs(gpu_by_name.GPU, 1 << 30).record(lambda: None)
    assert ended == [(0, POOL)]
