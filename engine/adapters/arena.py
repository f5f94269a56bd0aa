"""Device memory for adapters: allocated once, handed out in runs of pages.

S-LoRA (Sheng et al., 2023, arXiv:2311.03285, section 4.1) pages adapters for the same reason: ranks differ, and memory
padded to the largest rank holds few of them. A run holds one adapter's weights for one module, so runs are short
relative to the arena and small holes get used.
"""

import bisect
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

PAGE = 4096  # bytes; the last page of a run is half empty on average


@dataclass(frozen=True, slots=True, order=True)
class Run:
    """Pages [start, start + count)."""

    start: int
    count: int

    @property
    def stop(self) -> int:
        return self.start + self.count


class AdapterArena:
    """First-fit allocation over an ordered list of merged holes.

    With `in_host` there is no memory of its own: the device reads host copies in place, and pages only count how much
    of them is in use.
    """

    def __init__(self, size: int, device: torch.device, *, in_host: bool = False) -> None:
        self.total = max(1, size // PAGE)
        self.in_host = in_host
        self._memory = torch.empty(0 if in_host else self.total * PAGE, dtype=torch.uint8, device=device)
        self._holes = [Run(0, self.total)]
        self.free = self.total

    @property
    def used(self) -> int:
        return self.total - self.free

    def pages_for(self, sizes: Sequence[int]) -> int:
        """Return the number of pages that `allocate` takes."""
        return sum(_pages(size) for size in self._runs_of(sizes))

    def allocate(self, sizes: Sequence[int]) -> tuple[Run, ...] | None:
        """Allocate a run for each size in bytes; return None and allocate nothing if they do not all fit."""
        runs: list[Run] = []
        for size in self._runs_of(sizes):
            run = self._take(_pages(size))
            if run is None:
                self.release(runs)
                return None
            runs.append(run)
        return tuple(runs)

    def release(self, runs: Sequence[Run]) -> None:
        for run in runs:
            self._merge(run)

    def memory(self, run: Run) -> Tensor:
        """Return the run's bytes, uint8."""
        assert not self.in_host
        return self._memory[run.start * PAGE : run.stop * PAGE]

    def _runs_of(self, sizes: Sequence[int]) -> Sequence[int]:
        return [sum(sizes)] if self.in_host else sizes

    def _take(self, count: int) -> Run | None:
        for i, hole in enumerate(self._holes):
            if hole.count >= count:
                left = Run(hole.start + count, hole.count - count)
                self._holes[i : i + 1] = [left] if left.count else []
                self.free -= count
                return Run(hole.start, count)
        return None

    def _merge(self, run: Run) -> None:
        self.free += run.count
        i = bisect.bisect(self._holes, run)
        before = self._holes[i - 1] if i and self._holes[i - 1].stop == run.start else None
        after = self._holes[i] if i < len(self._holes) and self._holes[i].start == run.stop else None
        start = before.start if before else run.start
        stop = after.stop if after else run.stop
        self._holes[i - (before is not None) : i + (after is not None)] = [Run(start, stop - start)]


def _pages(size: int) -> int:
    return -(-size // PAGE)
