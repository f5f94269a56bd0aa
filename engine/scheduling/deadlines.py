"""The latest times at which work on waiting sequences can begin."""

from loragate.engine.runtime.lazy_heap import LazyHeap
from loragate.engine.sequence.sequence import Sequence


class Deadlines:
    """Sequences by their latest start, as a time.monotonic()."""

    def __init__(self) -> None:
        self._latest: dict[Sequence, float] = {}
        self._heap: LazyHeap[Sequence] = LazyHeap(self._latest.__getitem__)

    def add(self, sequence: Sequence, latest: float) -> None:
        self._latest[sequence] = latest
        self._heap.add(sequence)

    def discard(self, sequence: Sequence) -> None:
        self._heap.discard(sequence)
        self._latest.pop(sequence, None)

    @property
    def next(self) -> float | None:
        first = self._heap.first()
        return None if first is None else self._latest[first]

    def pop_expired(self, now: float) -> list[Sequence]:
        """Remove and return the sequences whose time has passed."""
        late: list[Sequence] = []
        while (first := self._heap.first()) is not None and self._latest[first] < now:
            late.append(first)
            self.discard(first)
        return late
