"""Who waits, in the order of their turns: tenants by what they were served, and within a tenant by priority and age.

Requests of one tenant for one adapter stand in a *lane*, so that a queue of thousands that waits for an adapter, or
for a slot, is looked at through its head alone.
"""

import heapq
from dataclasses import dataclass, field

from loragate.engine.runtime.lazy_heap import LazyHeap
from loragate.engine.scheduling.virtual_counters import Account
from loragate.engine.sequence.request import AdapterKey
from loragate.engine.sequence.sequence import Sequence

Order = tuple[int, int]


def order_of(sequence: Sequence) -> Order:
    """Within a tenant: higher priorities first, then the older."""
    return -sequence.request.share.priority, sequence.arrival


@dataclass(eq=False, slots=True)
class Lane:
    """Sequences of one tenant that wait for one adapter, or for none but a seat."""

    account: Account
    key: AdapterKey | None
    turns: "Turns"  # where it stands
    blocked_since: int | None = None  # the step at which it found no slot; until one of its own is seated
    cleared_for: int | None = None  # the step at which others last gave way to it
    reading: bool = False  # its adapter is on its way to host memory; what comes then is not promised yet
    arriving: bool = False  # its adapter was not on the device when it was last looked for
    members: set[Sequence] = field(default_factory=set)
    _heap: list[tuple[Order, Sequence]] = field(default_factory=list)

    @property
    def head(self) -> Sequence:
        while self._heap[0][1] not in self.members:
            heapq.heappop(self._heap)
        return self._heap[0][1]

    @property
    def order(self) -> Order:
        return order_of(self.head)

    def add(self, sequence: Sequence) -> None:
        self.members.add(sequence)
        heapq.heappush(self._heap, (order_of(sequence), sequence))

    def goes_before(self, other: "Lane") -> bool:
        if self.account is other.account:
            return self.order < other.order
        return self.account.claim < other.account.claim


class Turns:
    """Lanes by whose turn it is."""

    def __init__(self) -> None:
        self._accounts: LazyHeap[Account] = LazyHeap(lambda account: account.claim)
        self._lanes: dict[Account, LazyHeap[Lane]] = {}

    def add(self, lane: Lane) -> None:
        """Also after its turn came nearer: by an older or more urgent member, or by its account's claim."""
        self._lanes.setdefault(lane.account, LazyHeap(lambda lane: lane.order)).add(lane)
        self._accounts.add(lane.account)

    def discard(self, lane: Lane) -> None:
        lanes = self._lanes.get(lane.account)
        if lanes is not None:
            lanes.discard(lane)
            if not lanes:
                del self._lanes[lane.account]
                self._accounts.discard(lane.account)

    def moved(self, account: Account) -> None:
        """The account's claim fell."""
        if account in self._accounts:
            self._accounts.add(account)

    def first(self) -> Lane | None:
        account = self._accounts.first()
        return None if account is None else self.first_of(account)

    def first_of(self, account: Account) -> Lane | None:
        lanes = self._lanes.get(account)
        return None if lanes is None else lanes.first()


class FairQueue:
    """A lane is *ready* while its adapter is on the device or on its way, as far as is known; the base model's always
    is. It is *blocked* while the device has no room for the adapter, *unread* while not even host memory has.

    Nothing here is linear in the number of waiting sequences.
    """

    def __init__(self) -> None:
        self.ready = Turns()  # adapters' lanes
        self.base = Turns()  # the base model's
        self.blocked = Turns()
        self.unread = Turns()
        self._lanes: dict[tuple[Account, AdapterKey | None], Lane] = {}
        self._lane_of: dict[Sequence, Lane] = {}
        self._by_key: dict[AdapterKey, set[Lane]] = {}

    def __len__(self) -> int:
        return len(self._lane_of)

    def __contains__(self, sequence: Sequence) -> bool:
        return sequence in self._lane_of

    def lane_of(self, sequence: Sequence) -> Lane:
        return self._lane_of[sequence]

    def add(self, sequence: Sequence, account: Account, *, ready: bool) -> Lane:
        """Queue by priority and age. `ready` says where a new lane stands; a known one stays where it is."""
        key = sequence.request.adapter
        lane = self._lanes.get((account, key))
        if lane is None:
            lane = self._lanes[account, key] = Lane(account, key, self.ready if ready else self.unread)
            if key is None:
                lane.turns = self.base
            else:
                self._by_key.setdefault(key, set()).add(lane)
        lane.add(sequence)
        self._lane_of[sequence] = lane
        lane.turns.add(lane)
        return lane

    def remove(self, sequence: Sequence) -> None:
        """It got a seat, or ended."""
        lane = self._lane_of.pop(sequence)
        lane.members.remove(sequence)
        if not lane.members:
            lane.turns.discard(lane)
            del self._lanes[lane.account, lane.key]
            if lane.key is not None:
                self._by_key[lane.key].remove(lane)
                if not self._by_key[lane.key]:
                    del self._by_key[lane.key]

    def place(self, lane: Lane, turns: Turns) -> None:
        lane.turns.discard(lane)
        lane.turns = turns
        turns.add(lane)

    def moved(self, account: Account) -> None:
        """The account's claim fell: its turn came nearer."""
        for turns in (self.base, self.ready, self.blocked, self.unread):
            turns.moved(account)

    def waiting_for(self, key: AdapterKey) -> list[Sequence]:
        return [sequence for lane in self._by_key.get(key, ()) for sequence in lane.members]

    def next_for_a_seat(self) -> Lane | None:
        """The lane whose turn it is among the ready and the base model's."""
        return _earlier(self.ready.first(), self.base.first())

    def next_of(self, account: Account) -> Lane | None:
        """The same of one tenant's lanes."""
        return _earlier(self.ready.first_of(account), self.base.first_of(account))


def _earlier(one: Lane | None, other: Lane | None) -> Lane | None:
    if one is None or other is None:
        return one or other
    return one if one.goes_before(other) else other
