"""Seats reserved for tenants that were admitted by preemption and whose only request ended.

A client that sends one request at a time is idle between two requests only in appearance (Iyer and Druschel,
"Anticipatory scheduling: a disk scheduling framework to overcome deceptive idleness in synchronous I/O", SOSP 2001). If
the sequence that was preempted for it returned in between, it would recompute its tokens only to be preempted again a
few steps later.
"""

from dataclasses import dataclass

RESERVATION_STEPS = 4
"""If the tenant does not come back, the cost is one row for this many steps, far less than recomputing a sequence."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """A reserved seat: the step until which it is held, and the blocks that go with it."""

    until: int
    blocks: int


class SeatReservations:
    """Reservations by tenant."""

    def __init__(self) -> None:
        self._reservations: dict[str, Reservation] = {}

    def __len__(self) -> int:
        return len(self._reservations)

    @property
    def tenants(self) -> list[str]:
        return list(self._reservations)

    @property
    def blocks(self) -> int:
        return sum(reservation.blocks for reservation in self._reservations.values())

    def add(self, tenant_id: str, step: int, blocks: int) -> None:
        self._reservations[tenant_id] = Reservation(step + RESERVATION_STEPS, blocks)

    def remove(self, tenant_id: str) -> None:
        del self._reservations[tenant_id]

    def expire(self, step: float) -> None:
        self._reservations = {tenant: held for tenant, held in self._reservations.items() if step < held.until}
