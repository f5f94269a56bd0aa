"""The most recent steps: their times, the durations of their phases, and the content of the batch."""

import math
import time
from collections import deque
from typing import NamedTuple

from loragate.engine.metrics.counters import BatchSize

REMEMBERED_STEPS = 2000


class EngineState(NamedTuple):
    """The engine at the end of a step. The last three are totals since the start."""

    running: int
    waiting: int
    kv_blocks: int
    slots: int
    loads: int
    evictions: int
    preemptions: int


class StepRecord(NamedTuple):
    """One step. Times are of time.perf_counter_ns(); `phases` holds the names with the end times, in order."""

    number: int
    began: int
    phases: tuple[tuple[str, int], ...]
    batch: BatchSize
    state: EngineState

    @property
    def ended(self) -> int:
        return self.phases[-1][1]

    @property
    def seconds(self) -> float:
        return (self.ended - self.began) / 1e9


class Timeline:
    """The recorded steps. Written by the step thread; `steps` is thread-safe."""

    def __init__(self, remembered: int = REMEMBERED_STEPS) -> None:
        self._records: deque[StepRecord] = deque(maxlen=remembered)
        self._number = 0
        self._began = 0
        self._phases: list[tuple[str, int]] = []

    def begin(self) -> None:
        """Start a step, dropping one that was started and not recorded."""
        self._began = time.perf_counter_ns()
        self._phases = []

    def ended(self, phase: str) -> None:
        """End a phase, which began when the previous one ended."""
        self._phases.append((phase, time.perf_counter_ns()))

    def record(self, batch: BatchSize, state: EngineState) -> float:
        """Record the step, and return its duration in seconds."""
        self._number += 1
        record = StepRecord(self._number, self._began, tuple(self._phases), batch, state)
        self._records.append(record)
        return record.seconds

    def steps(self, last: int | None = None) -> list[StepRecord]:
        """Return the last steps, or all that are recorded, oldest first."""
        records = list(self._records.copy())  # one call copies atomically with respect to a step that ends
        return records if last is None else records[max(0, len(records) - last) :]


def percentile(sorted_values: list[float], share: float) -> float:
    """Return the smallest value such that `share` of all values are not above it; 0 for an empty list."""
    return sorted_values[max(0, math.ceil(share * len(sorted_values)) - 1)] if sorted_values else 0.0
