"""A device that does late what it is given: each stream in order, and of several any first that events let go on."""

import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from loragate.engine.runtime.copy_stream import Event, HostCopyStream


@dataclass(eq=False)
class LateEvent:
    device: "LateDevice"
    over: bool = False

    def synchronize(self) -> None:
        while not self.over:
            assert self.device.advance(), "an event that never comes"

    def happen(self) -> None:
        self.over = True


@dataclass(eq=False)
class LateStream:
    """A copy stream, or what computes."""

    device: "LateDevice"
    _given: deque[tuple[LateEvent | None, Callable[[], None]]] = field(default_factory=deque)

    def launch(self, work: Callable[[], None], after: LateEvent | None = None) -> None:
        self._given.append((after, work))

    def copy(self, source: Tensor, targets: Sequence[Tensor]) -> None:
        self.launch(lambda: HostCopyStream().copy(source, targets))

    def wait(self, event: Event) -> None:
        assert isinstance(event, LateEvent)
        self.launch(lambda: None, event)

    def record(self) -> LateEvent:
        event = LateEvent(self.device)
        self.launch(event.happen)
        return event

    @property
    def can_go_on(self) -> bool:
        return bool(self._given) and ((after := self._given[0][0]) is None or after.over)

    def go_on(self) -> None:
        self._given.popleft()[1]()


class LateDevice:
    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.computes, self.copies = LateStream(self), LateStream(self)

    def advance(self) -> bool:
        """Do one thing; False if there is none to be done."""
        able = [stream for stream in (self.computes, self.copies) if stream.can_go_on]
        if able:
            self._rng.choice(able).go_on()
        return bool(able)
