"""When work on a sequence must begin at the latest."""

from loragate.engine.runtime.lazy_heap import LazyHeap
from loragate.engine.sequence.sequence import Sequence


class Deadlines:
    """Times are time.monotonic()s."""

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

    def passed(self, now: float) -> list[Sequence]:
        """Those whose time is over; each is told once."""
        late: list[Sequence] = []
        while (first := self._heap.first()) is not None and self._latest[first] < now:
            late.append(first)
            self.discard(first)
        return late
