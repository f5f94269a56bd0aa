"""How lanes come by their adapters: whose turn it is for a slot, and who is held back for another's."""

from dataclasses import dataclass, replace

from loragate.engine.adapters.pool import AdapterPool
from loragate.engine.scheduling.fair_queue import FairQueue, Lane
from loragate.engine.sequence.request import AdapterKey
from loragate.engine.sequence.sequence import Sequence

OVERTAKE_STEPS = 32
"""Steps for which sequences with a slot may overtake one that waits for a slot. After that nobody whose turn is later
gets a seat for an adapter, slots fall free, and its turn comes: `A, B, A, A, …` cannot starve B. An adapter that was
loaded meanwhile may seat those who waited for it for as long."""


class SlotTurns:
    """Moves lanes between ready, blocked and unread, as the adapter pool answers."""

    def __init__(self, adapters: AdapterPool, waiting: FairQueue) -> None:
        self._adapters = adapters
        self._waiting = waiting
        self._residences = Residences()
        self._step = 0

    def begin_step(self) -> None:
        self._step += 1

    def price(self, key: AdapterKey, token_cost: float) -> None:
        self._residences.price(key, token_cost)

    def token_cost(self, key: AdapterKey | None) -> float:
        return self._residences.of(key).token_cost

    def resident(self, key: AdapterKey) -> bool:
        lease = self._adapters.acquire(key)
        if lease is not None:
            self._adapters.release(lease)
        return lease is not None

    def wait(self, lane: Lane) -> None:
        """A sequence joined the lane."""
        if lane.turns is self._waiting.unread and lane.blocked_since is None:
            lane.blocked_since = self._step

    def lease(self, lane: Lane) -> bool:
        """Hold the head's adapter. If it cannot be held yet, it is on its way, or the lane is blocked again."""
        if lane.key is None or self._hold(lane, lane.key):
            return True
        lane.arriving = True
        if lane.reading and self._adapters.host.get(lane.key) is not None:
            lane.reading = False
            self._waiting.place(lane, self._waiting.blocked)  # others may have waited for room before it
            return False
        return self.promise(lane) and self._hold(lane, lane.key)

    def _hold(self, lane: Lane, key: AdapterKey) -> bool:
        lease = self._adapters.acquire(key)
        if lease is None:
            return False
        lane.head.hold(lease)
        if lane.arriving:
            lane.arriving = False
            self._residences.begin(key, self._step)
        return True

    def release(self, sequence: Sequence | None) -> None:
        if sequence is not None and sequence.lease is not None:
            self._adapters.release(sequence.lease)
            sequence.lease = None

    def promise(self, lane: Lane) -> bool:
        """See to it that the lane's adapter comes. If it must wait for others to leave, the lane stands there now."""
        assert lane.key is not None
        read = self._adapters.host.get(lane.key) is not None
        if self._adapters.want(lane.key, lane.head, overdue=self._overdue(lane)):
            lane.reading = not read
            return True
        self._waiting.place(lane, self._waiting.blocked if read else self._waiting.unread)
        if lane.blocked_since is None:
            lane.blocked_since = self._step
        return False

    def may_clear(self, lane: Lane) -> bool:
        """Whether others should give way: only room on the device is missing, and they did not lately in vain."""
        lately = lane.cleared_for is not None and self._step - lane.cleared_for <= OVERTAKE_STEPS
        return lane.turns is self._waiting.blocked and not lately

    def cleared(self, lane: Lane) -> None:
        """Others gave way to it."""
        lane.cleared_for = self._step

    def held_back(self, lane: Lane) -> bool:
        """One with an earlier turn has waited too long for a slot: nobody else sits down on one."""
        blocked = self._waiting.blocked.first()
        return (
            lane.key is not None
            and blocked is not None
            and self._overdue(blocked)
            and blocked.goes_before(lane)
            and self._step - self._residences.of(lane.key).since > OVERTAKE_STEPS
        )

    def _overdue(self, lane: Lane) -> bool:
        return lane.blocked_since is not None and self._step - lane.blocked_since > OVERTAKE_STEPS


_MOST = 1 << 16


@dataclass(frozen=True, slots=True)
class Residence:
    token_cost: float = 1.0
    since: int = 0  # the step


class Residences:
    """Bounded: of very many adapters, those heard of longest ago are taken for new."""

    def __init__(self) -> None:
        self._known: dict[AdapterKey, Residence] = {}

    def of(self, key: AdapterKey | None) -> Residence:
        return Residence() if key is None else self._known.get(key, Residence())

    def price(self, key: AdapterKey, token_cost: float) -> None:
        self._note(key, replace(self.of(key), token_cost=token_cost))

    def begin(self, key: AdapterKey, step: int) -> None:
        self._note(key, replace(self.of(key), since=step))

    def _note(self, key: AdapterKey, residence: Residence) -> None:
        self._known.pop(key, None)
        self._known[key] = residence
        if len(self._known) > _MOST:
            del self._known[next(iter(self._known))]
