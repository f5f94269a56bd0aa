"""Training slows down in proportion to serving, and uses the whole machine while nothing is served."""

import io
import os
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from loragate.engine.client.errors import EngineUnavailable
from loragate.finetune.training.session import read_commands
from loragate.finetune.training.throttle import Throttle, set_idle_priority
from loragate.finetune.worker.engine_link import engine_loads


class Stop(threading.Event):
    """Records how long it was waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.pauses: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.pauses.append(timeout)
        return False


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(("load", "pause"), [(0.25, 1.0), (0.5, 3.0), (0.75, 9.0), (1.0, 10.0), (7.0, 10.0)])
def test_pauses_are_in_proportion(load: float, pause: float) -> None:
    stop, now = Stop(), iter([0.0, 3.0, 3.0])
    throttle = Throttle(2, stop, lambda: next(now))
    throttle.set_load(load)
    throttle()
    throttle()
    assert stop.pauses == [0.0, pytest.approx(pause)]
    assert torch.get_num_threads() == 1


def test_while_nothing_is_served_all_threads_work_without_a_pause() -> None:
    stop = Stop()
    throttle = Throttle(2, stop)
    throttle.set_load(0.5)
    throttle()
    throttle.set_load(0.0)
    throttle()
    assert len(stop.pauses) == 1
    assert torch.get_num_threads() == 2


def test_an_idle_priority_trainer_computes_only_while_the_cpu_is_free() -> None:
    found: list[int] = []

    def look() -> None:
        set_idle_priority()
        found.append(os.sched_getscheduler(0))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert (found, os.sched_getscheduler(0)) == ([os.SCHED_IDLE], os.SCHED_OTHER)


def test_waiting_for_others_does_not_count_as_work() -> None:
    stop = Stop()
    throttle = Throttle(2, stop)
    throttle.set_load(0.5)
    throttle()
    time.sleep(0.5)
    throttle()
    assert stop.pauses[1] < 0.25


@pytest.mark.parametrize("orders", ["load 0.25\nload 0.5\n", "load 0.5\nstop\nload 0.1\n"])
def test_loads_are_read_until_there_are_no_more(orders: str) -> None:
    received: list[float] = []
    stop = threading.Event()
    read_commands(io.StringIO(orders), stop, SimpleNamespace(set_load=received.append))  # type: ignore[arg-type]
    assert received[-1] == 0.5
    assert stop.is_set()


class Engine:
    """Reports how long it has computed since its start, or is unavailable."""

    def __init__(self, *computed: float | None) -> None:
        self._computed = iter(computed)

    async def stats(self, **_: Any) -> Any:
        seconds = next(self._computed)
        if seconds is None:
            raise EngineUnavailable("away")
        return SimpleNamespace(step_seconds=SimpleNamespace(sum=seconds))


async def test_a_load_is_the_share_of_time_in_which_the_engine_computed() -> None:
    now = iter(range(0, 100, 2))
    engine: Any = Engine(10.0, 10.5, 10.505, 15.0, None, 1.0)
    found = engine_loads(lambda: [engine], 0.0, lambda: next(now))
    assert [await anext(found) for _ in range(5)] == [0.25, 0.0, 1.0, 0.0, 0.5]
