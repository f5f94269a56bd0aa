"""A device that executes work late: in order within a stream, in random order between streams that are not blocked."""

import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from loragate.engine.runtime.copy_stream import Event, HostCopyStream


@dataclass(eq=False)
class DeferredEvent:
    device: "DeferredDevice"
    over: bool = False

    def synchronize(self) -> None:
        while not self.over:
            assert self.device.advance(), "the event never happens"

    def happen(self) -> None:
        self.over = True


@dataclass(eq=False)
class DeferredStream:
    """A copy stream or the compute stream."""

    device: "DeferredDevice"
    _queue: deque[tuple[DeferredEvent | None, Callable[[], None]]] = field(default_factory=deque)

    def launch(self, work: Callable[[], None], after: DeferredEvent | None = None) -> None:
        self._queue.append((after, work))

    def copy(self, source: Tensor, targets: Sequence[Tensor]) -> None:
        self.launch(lambda: HostCopyStream().copy(source, targets))

    def wait(self, event: Event) -> None:
        assert isinstance(event, DeferredEvent)
        self.launch(lambda: None, event)

    def record(self) -> DeferredEvent:
        event = DeferredEvent(self.device)
        self.launch(event.happen)
        return event

    @property
    def ready(self) -> bool:
        return bool(self._queue) and ((after := self._queue[0][0]) is None or after.over)

    @property
    def pending(self) -> int:
        return len(self._queue)

    def resume(self) -> None:
        self._queue.popleft()[1]()


class DeferredDevice:
    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.computes, self.copies = DeferredStream(self), DeferredStream(self)

    def advance(self) -> bool:
        """Execute one operation; return False if there is none."""
        ready = [stream for stream in (self.computes, self.copies) if stream.ready]
        if ready:
            self._rng.choice(ready).resume()
        return bool(ready)
