"""Preemption of a step: while a short command runs beside it, the step pauses between its layers."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

_GRACE_SECONDS = 0.05  # for which a step that has just begun pauses


class Preemption:
    """Gives short commands the processor that a step would share with them. A step pauses for at most as long as it
    has computed, and a moment, so that commands without end slow it down and do not stop it."""

    def __init__(self) -> None:
        self._free = threading.Event()
        self._free.set()
        self._begun = 0.0
        self._paused = 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Preempt the step while the block runs. One block at a time."""
        self._free.clear()
        try:
            yield
        finally:
            self._free.set()

    def begin_step(self) -> None:
        """Note that the calling thread begins a step."""
        self._begun, self._paused = time.monotonic(), 0.0

    def pause(self) -> None:
        """Wait in the step's thread while a short command runs."""
        if self._free.is_set():
            return
        since = time.monotonic()
        computed = since - self._begun - self._paused
        allowed = computed + _GRACE_SECONDS - self._paused
        if allowed > 0:
            self._free.wait(allowed)
            self._paused += time.monotonic() - since
