"""Setup for these tests where no other conftest is read: see `pytest.ini` in this folder."""

import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings
from interpreted_dot import make_dot_independent_of_position
from quick_interpreter import make_interpreter_quick
from simulated_memory import SimulatedMemory, refusing_host_memory

settings.register_profile("kernels", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("kernels")

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")
    make_dot_independent_of_position()
    make_interpreter_quick()

if importlib.util.find_spec("loragate") is None:
    sys.path.append(str(Path(__file__).parents[3]))
    from benchmarks.lib import checkout

    checkout.find_parts()


@pytest.fixture(autouse=True)
def device_memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Without a GPU, simulates one whose memory is apart from the host's."""
    if torch.cuda.is_available():
        yield
        return
    from triton.runtime.interpreter import GridExecutor

    monkeypatch.setattr(GridExecutor, "__call__", refusing_host_memory(GridExecutor.__call__))
    with SimulatedMemory():
        yield
