"""The threads of a trainer: only those that compute steps give way to serving."""

import os
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from loragate.trainer.worker.compute import Compute


@pytest.mark.skipif(sys.platform != "linux", reason="only on Linux does each thread have a niceness of its own")
async def test_only_threads_that_compute_steps_give_way_to_serving() -> None:
    trainer: Any = SimpleNamespace()
    compute = Compute(trainer, 0)
    own = niceness()
    try:
        assert await compute.run_step(niceness) > own
        assert await compute.run(niceness) == niceness() == own
    finally:
        compute.close()


def niceness(*_: object) -> int:
    return os.getpriority(os.PRIO_PROCESS, 0)  # 0 is the calling thread
