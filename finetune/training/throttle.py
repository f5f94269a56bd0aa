"""Throttles training in favour of serving on the same machine."""

import os
import threading
import time
from collections.abc import Callable

import torch

_MIN_SHARE = 0.2  # pauses are at most four times as long as the work before them
_MAX_PAUSE = 10.0  # seconds


def set_idle_priority() -> None:
    """Let this thread, and those that it starts, compute only while nothing else on the machine wants the core.

    Any other thread gets the core as soon as it wakes up, whereas a merely nice process keeps it for the rest of its
    time slice, some milliseconds (sched(7), SCHED_IDLE). Does nothing except on Linux.
    """
    if hasattr(os, "SCHED_IDLE"):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


class Throttle:
    """Called between micro-batches; pauses in proportion to the engine's load.

    While the engine computes for a fraction `load` of its time, training uses one thread and pauses in proportion; at
    load 0 it uses `threads` without pauses. `stop` ends a pause.

    `clock` measures work. On a CPU that is the process's CPU time: time in which other processes had the cores already
    counts as rest. A GPU has no such clock.
    """

    def __init__(self, threads: int, stop: threading.Event, clock: Callable[[], float] | None = None) -> None:
        self._threads = threads
        self._stop = stop
        self._clock = clock or (time.monotonic if torch.cuda.is_available() else time.process_time)
        self._load = 0.0
        self._since: float | None = None

    def set_load(self, load: float) -> None:
        """Set the engine's load. Called from another thread."""
        self._load = min(1.0, max(0.0, load))

    def __call__(self) -> None:
        """Pause if the engine is loaded."""
        load = self._load
        worked = 0.0 if self._since is None else self._clock() - self._since
        threads = 1 if load else self._threads
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
        if load:
            self._stop.wait(min(_MAX_PAUSE, worked * load / max(_MIN_SHARE, 1 - load)))
        self._since = self._clock()
