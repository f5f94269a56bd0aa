"""Signals that stop the server: the first one lets requests finish, a second one does not."""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager

_SAME_SIGNAL_SECONDS = 0.3


class StopSignals:
    """`requested` is set by the first signal, `immediate` by the second."""

    def __init__(self) -> None:
        self.requested = asyncio.Event()
        self.immediate = asyncio.Event()
        self._first: float | None = None

    def record_signal(self) -> None:
        """Record a signal. One sent to a process group may arrive twice, from its sender and from make."""
        now = asyncio.get_running_loop().time()
        if self._first is None:
            self._first = now
            self.requested.set()
        elif now - self._first > _SAME_SIGNAL_SECONDS:
            self.immediate.set()


@contextmanager
def stop_signals() -> Iterator[StopSignals]:
    """Handle SIGTERM, SIGINT and, unless nohup has disabled it, SIGHUP.

    Afterwards all of them are ignored: the process is about to end with a status that describes the shutdown.
    """
    signals = StopSignals()
    loop = asyncio.get_running_loop()
    handled = [signal.SIGTERM, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        handled.append(signal.SIGHUP)
    for number in handled:
        loop.add_signal_handler(number, signals.record_signal)
    try:
        yield signals
    finally:
        for number in handled:
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_IGN)
