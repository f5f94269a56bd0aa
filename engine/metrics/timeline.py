"""When the last steps ran, what each of their phases took, and what was in the batch."""

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
    """Times are of time.perf_counter_ns(); `phases` holds the names with the ends, in order."""

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
    """Written by the step thread; `steps` may be read from any."""

    def __init__(self, remembered: int = REMEMBERED_STEPS) -> None:
        self._records: deque[StepRecord] = deque(maxlen=remembered)
        self._number = 0
        self._began = 0
        self._phases: list[tuple[str, int]] = []

    def begin(self) -> None:
        """What was begun before and not recorded was no step."""
        self._began = time.perf_counter_ns()
        self._phases = []

    def ended(self, phase: str) -> None:
        """The phase, which began where the one before it ended, is over."""
        self._phases.append((phase, time.perf_counter_ns()))

    def record(self, batch: BatchSize, state: EngineState) -> float:
        """The step is over. Returns its seconds."""
        self._number += 1
        record = StepRecord(self._number, self._began, tuple(self._phases), batch, state)
        self._records.append(record)
        return record.seconds

    def steps(self, last: int | None = None) -> list[StepRecord]:
        """Oldest first; all that are remembered unless told otherwise."""
        records = list(self._records.copy())  # one call copies: a step that ends meanwhile cannot come between
        return records if last is None else records[max(0, len(records) - last) :]


def percentile(sorted_values: list[float], share: float) -> float:
    """The smallest value that is not below `share` of them; 0 of none."""
    return sorted_values[max(0, math.ceil(share * len(sorted_values)) - 1)] if sorted_values else 0.0
