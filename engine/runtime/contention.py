"""Measurement of the competition for processors, from Linux's counters (proc(5), schedstats in the kernel's docs)."""

import os
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_PROC = Path("/proc")
_LINE = 256  # bytes, more than a processor's line in /proc/stat has
_TICKS = os.sysconf("SC_CLK_TCK")
_NICE, _IDLE, _IOWAIT = 2, 4, 5  # fields of such a line


class Contention(NamedTuple):
    """What a team of threads met while it computed; both are averages over that time."""

    delay: float  # threads that were ready and waited for a processor
    free: float  # processors that nothing else wanted, beyond those that the team used


class ContentionMeter:
    """Measures the contention between two readings, for a team of threads with these native ids."""

    def __init__(self, ids: Sequence[int], processors: Collection[int]) -> None:
        self._processors = processors
        self._with_nice = os.getpriority(os.PRIO_PROCESS, 0) <= 0  # else the team's own time is counted there
        self._stat = os.open(_PROC / "stat", os.O_RDONLY)
        self._threads: list[int] = []
        try:
            for each in ids:
                self._threads.append(os.open(_PROC / "self" / "task" / str(each) / "schedstat", os.O_RDONLY))
            self._last = self._totals()
        except OSError:
            self.close()
            raise

    def read(self, busy: float) -> Contention:
        """Return the contention since the last reading, in which the team computed for `busy` seconds.

        Raises OSError when a thread of the team has ended.
        """
        (then, delay_before, free_before), self._last = self._last, self._totals()
        now, delay, free = self._last
        wall = max(now - then, busy)
        unused = len(self._threads) * (1 - busy / wall)  # processors that were free only while the team did not compute
        return Contention((delay - delay_before) / busy, (free - free_before) / wall - unused)

    def close(self) -> None:
        for file in (self._stat, *self._threads):
            os.close(file)

    def _totals(self) -> tuple[float, float, float]:
        """Return the time, the team's delay and the processors' free time so far, all in seconds."""
        return time.monotonic(), sum(map(_delay, self._threads)), self._free()

    def _free(self) -> float:
        """Return the time in which the processors were idle, or ran processes that yield to us."""
        ticks = 0
        for line in os.pread(self._stat, _LINE * (1 + (os.cpu_count() or 1)), 0).decode().splitlines():
            name, *_ = fields = line.split()
            if name[3:].isdecimal() and name.startswith("cpu") and int(name[3:]) in self._processors:
                ticks += int(fields[_IDLE]) + int(fields[_IOWAIT]) + (int(fields[_NICE]) if self._with_nice else 0)
        return ticks / _TICKS


def _delay(schedstat: int) -> float:
    """Return the seconds that a thread waited on a run queue."""
    return int(os.pread(schedstat, 64, 0).split()[1]) / 1e9


def measurable() -> bool:
    """Return whether the system has these counters."""
    with suppress(OSError, AttributeError, IndexError, ValueError):
        ContentionMeter([os.getpid()], os.sched_getaffinity(0)).close()
        return True
    return False
