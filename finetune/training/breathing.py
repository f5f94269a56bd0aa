"""Giving way to whoever serves on the same machine."""

import threading
import time
from collections.abc import Callable

import torch

_LEAST_SHARE = 0.2  # of the time is the training's, however busy the engine is
_LONGEST_PAUSE = 10.0  # seconds


class Breather:
    """Called between micro-batches. While the engine computes for so much of its time (`load`, 0 to 1), one thread
    works and rests in proportion; while nobody is served, `threads` work without a pause. `stop` ends a pause.
    """

    def __init__(self, threads: int, stop: threading.Event, clock: Callable[[], float] = time.monotonic) -> None:
        self._threads = threads
        self._stop = stop
        self._clock = clock
        self._load = 0.0
        self._since: float | None = None

    def hear(self, load: float) -> None:
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
