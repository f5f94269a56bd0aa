"""A histogram with fixed buckets, written by one thread and read by any."""

from bisect import bisect_left
from dataclasses import dataclass

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
SIZES = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0)


@dataclass(frozen=True, slots=True)
class HistogramCounts:
    """A histogram at one moment. `counts` has one bucket more than `bounds`, for larger values."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    sum: float


class Histogram:
    """A histogram whose `bounds` are the buckets' inclusive upper ends, ascending.

    No lock: the counts are copied atomically, and the sum may be one observation ahead of them.
    """

    __slots__ = ("_counts", "_sum", "bounds")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        self._sum += value
        self._counts[bisect_left(self.bounds, value)] += 1

    def read(self) -> HistogramCounts:
        return HistogramCounts(self.bounds, tuple(self._counts), self._sum)
