"""A bound on the duration of a step while several tenants share it.

With virtual token counters alone, a tenant with one sequence decodes in every step, but each step takes as long as the
other tenants' rows make it. On a CPU, where a row costs time, a flood of sequences thus slows everybody else down.
"""

from collections.abc import Sequence as Seq

from loragate.engine.scheduling.preemption import ScheduledSequence
from loragate.engine.sequence.sequence import Sequence

_MEMORY = 0.8  # weight of a sample after one further sample
_OUTLIER = 2.0  # samples count at most as so many times what is known: the first step of each size takes long
_FEW = 4  # rows of a step whose duration stands for one row's
_STALE = 32  # steps after which that duration is measured again


class FairPace:
    """Chooses the decoding sequences of a step, so that it takes at most `max_slowdown` times as long as one with a
    single row. Every tenant has a row in each step; what is left goes to further sequences, in turn.

    Without a `max_slowdown`, or while one tenant is alone, all sequences decode.
    """

    def __init__(self, max_slowdown: float | None) -> None:
        self.max_slowdown = max_slowdown
        self._few: _Sample | None = None  # steps of few rows
        self._many: _Sample | None = None
        self._since = 0  # shared steps since the last one of few rows
        self._step = 0

    def observe(self, decoding: int, seconds: float) -> None:
        """Record the duration of a step with so many rows and without prefill."""
        if decoding > _FEW:
            self._many = _updated(self._many, decoding, seconds)
        else:
            self._few, self._since = _updated(self._few, decoding, seconds), 0

    def seconds_for_prefill(self, decoding: int) -> float | None:
        """Return the time that a shared step with so many decoding rows has for prompts; None if it is not bounded."""
        target = self._target
        return None if target is None else target - self._estimate(decoding)

    def choose(self, decoding: Seq[ScheduledSequence], max_rows: int, *, prefill: bool) -> set[Sequence]:
        """Return those of a shared step's sequences that decode in it; `prefill`: prompts are to be computed, too."""
        if self.max_slowdown is None:
            return {entry.sequence for entry in decoding[:max_rows]}
        self._step += 1
        first, further = _divide(sorted(decoding, key=_turn))
        limit = min(max_rows, self._rows(len(first), prefill=prefill))
        chosen = [*first, *further][: max(limit, min(len(first), max_rows))]
        for entry in chosen:
            entry.last_step = self._step
        return {entry.sequence for entry in chosen}

    def _rows(self, tenants: int, *, prefill: bool) -> int:
        """Return the number of rows for which there is time."""
        self._since += 1
        if not prefill and tenants <= _FEW and (self._few is None or self._since > _STALE):
            return tenants
        if self._many is None:
            return 2 * _FEW  # to learn from
        target = self._target
        if target is None or not self._seconds_per_row:
            return 1 << 30
        room = target - self._estimate(1)
        return 1 + int((room / 2 if prefill else room) / self._seconds_per_row)

    @property
    def _target(self) -> float | None:
        """The longest duration of a shared step in seconds; None if it is not bounded or not known yet."""
        if self.max_slowdown is None or self._few is None:
            return None
        return self.max_slowdown * self._estimate(1)

    def _estimate(self, rows: int) -> float:
        """Return the duration of a step with so many rows and without prefill, in seconds."""
        assert self._few is not None
        return max(0.0, self._few.seconds + self._seconds_per_row * (rows - self._few.rows))

    @property
    def _seconds_per_row(self) -> float:
        """The time that a further row adds; 0 while it is unknown."""
        if self._few is None or self._many is None:
            return 0.0
        return max(0.0, (self._many.seconds - self._few.seconds) / (self._many.rows - self._few.rows))


class _Sample:
    """Decaying averages over similar steps."""

    def __init__(self, rows: float, seconds: float) -> None:
        self.rows = rows
        self.seconds = seconds


def _updated(sample: _Sample | None, rows: int, seconds: float) -> _Sample:
    if sample is None:
        return _Sample(rows, seconds)
    seconds = min(seconds, _OUTLIER * sample.seconds)
    return _Sample(_MEMORY * sample.rows + (1 - _MEMORY) * rows, _MEMORY * sample.seconds + (1 - _MEMORY) * seconds)


def _turn(entry: ScheduledSequence) -> tuple[float, int, int, int]:
    """Return the sort key: fair order, but within a tenant's priority those first that waited longest."""
    _, counter, (priority, arrival) = entry.order
    return counter, priority, entry.last_step, arrival


def _divide(entries: Seq[ScheduledSequence]) -> tuple[list[ScheduledSequence], list[ScheduledSequence]]:
    """Return the first sequence of each tenant, and the others."""
    first: list[ScheduledSequence] = []
    further: list[ScheduledSequence] = []
    seen = set()
    for entry in entries:
        (further if entry.tenant in seen else first).append(entry)
        seen.add(entry.tenant)
    return first, further
