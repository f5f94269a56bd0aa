"""Who gives way, when a tenant that was served less waits for what one that was served more holds.

Giving way costs: what was computed is computed again. So a tenant must be ahead by more than that, and by a quantum of
service; each swap then pays for itself, and two tenants cannot take turns at throwing each other out.
"""

from collections import Counter, defaultdict
from collections.abc import Collection
from dataclasses import dataclass

from loragate.engine.adapters.token_cost import PROMPT_UNITS
from loragate.engine.scheduling.fair_queue import order_of
from loragate.engine.scheduling.virtual_counters import Account
from loragate.engine.sequence.request import AdapterKey
from loragate.engine.sequence.sequence import Sequence

RECOMPUTE_UNITS = 0.25
"""What computing a token again counts for: it goes through in large chunks, and nothing is sampled."""

QUANTUM = 128.0
"""Units of service by which a tenant must be ahead beside what giving way costs it: of 64 decoding sequences one
step's worth, of a single one 64 tokens."""


@dataclass(eq=False, slots=True)
class Ticket:
    """A sequence in the scheduler's books."""

    sequence: Sequence
    account: Account
    expected: float  # units of service that it is expected to take
    cost: float = 1.0  # of its tokens, against the base model's
    charged: int = 0  # prompt tokens that its tenant was charged for
    seated: bool = False
    let_in: bool = False  # others gave way for its seat

    @property
    def pending(self) -> float:
        """Units that its prompt will still be charged."""
        return PROMPT_UNITS * self.cost * (self.sequence.prompt_length - self.charged)

    @property
    def price(self) -> float:
        """Units of work that are lost when it gives way."""
        return RECOMPUTE_UNITS * self.cost * self.sequence.computed

    @property
    def turn(self) -> tuple[float, tuple[int, int]]:
        return self.account.counter, order_of(self.sequence)


def for_room(by_turn: list[Ticket], guest: Account, seats: int, blocks: int) -> list[Ticket] | None:
    """Fewest of the seated, last turn first, that make room for a sequence of `guest`; None if they need not.

    Args:
        by_turn: the seated.
        seats, blocks: how many are missing.
    """
    held = Counter(ticket.account for ticket in by_turn)
    victims: list[Ticket] = []
    for ticket in reversed(by_turn):
        if seats <= 0 and blocks <= 0:
            break
        host = ticket.account
        if not _far_ahead(host, guest, ticket.price) or not _balanced(host, held[host], guest, held[guest]):
            return None
        victims.append(ticket)
        held[host] -= 1
        seats -= 1
        blocks -= len(ticket.sequence.blocks) + 1
    return victims if seats <= 0 and blocks <= 0 else None


def for_slot(seated: Collection[Ticket], guest: Account) -> list[Ticket]:
    """All sequences of the one adapter whose slot costs least to clear for `guest`; empty if none needs to be."""
    if not any(_far_ahead(account, guest, 0.0) for account in {ticket.account for ticket in seated}):
        return []
    by_adapter: dict[AdapterKey, list[Ticket]] = defaultdict(list)
    for ticket in seated:
        if ticket.sequence.request.adapter is not None:
            by_adapter[ticket.sequence.request.adapter].append(ticket)
    held = Counter(account for group in by_adapter.values() for account in {ticket.account for ticket in group})

    def gives_way(group: list[Ticket]) -> bool:
        price = _price(group)
        return all(
            _far_ahead(t.account, guest, price) and _balanced(t.account, held[t.account], guest, held[guest])
            for t in group
        )

    groups = [group for group in by_adapter.values() if gives_way(group)]
    return min(groups, key=lambda group: (-group[0].account.counter, _price(group)), default=[])


def _price(group: list[Ticket]) -> float:
    return sum(ticket.price for ticket in group)


def _far_ahead(host: Account, guest: Account, price: float) -> bool:
    return host is not guest and host.counter - guest.counter > (QUANTUM + price) / host.weight


def _balanced(host: Account, hosts: int, guest: Account, guests: int) -> bool:
    """Whoever holds nothing may take; beyond that, only from one who still holds as much afterwards by weight."""
    return guests == 0 or (hosts - 1) / host.weight >= (guests + 1) / guest.weight
