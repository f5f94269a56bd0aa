"""Giving way to whoever serves on the same machine."""

import os
import threading
import time
from collections.abc import Callable

import torch

_LEAST_SHARE = 0.2  # it rests for no longer than four times its work
_LONGEST_PAUSE = 10.0  # seconds


def set_idle_priority() -> None:
    """From now on this thread, and those that it starts, compute only while nothing else on the machine wants the core:
    whoever wakes up has it at once, where a merely nice process keeps it for the rest of its turn, some milliseconds
    (sched(7), SCHED_IDLE). Elsewhere than on Linux nothing changes."""
    if hasattr(os, "SCHED_IDLE"):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


class Throttle:
    """Called between micro-batches. While the engine computes for so much of its time (`load`, 0 to 1), one thread
    works and rests in proportion; while nobody is served, `threads` work without a pause. `stop` ends a pause.

    Work is what `clock` counts. On processors that is the time it had them: while others did it has rested already. A
    GPU has no such clock.
    """

    def __init__(self, threads: int, stop: threading.Event, clock: Callable[[], float] | None = None) -> None:
        self._threads = threads
        self._stop = stop
        self._clock = clock or (time.monotonic if torch.cuda.is_available() else time.process_time)
        self._load = 0.0
        self._since: float | None = None

    def set_load(self, load: float) -> None:
        """From another thread: how busy the engine is."""
        self._load = min(1.0, max(0.0, load))

    def __call__(self) -> None:
        """A pause, if there must be one."""
        load = self._load
        worked = 0.0 if self._since is None else self._clock() - self._since
        threads = 1 if load else self._threads
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
        if load:
            self._stop.wait(min(_LONGEST_PAUSE, worked * load / max(_LEAST_SHARE, 1 - load)))
        self._since = self._clock()
