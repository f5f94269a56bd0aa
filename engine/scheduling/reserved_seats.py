"""Seats kept for tenants that were let in by preemption, ended their only request, and may be back at once.

A client that sends one request at a time is idle between two only in appearance (Iyer and Druschel, "Anticipatory
scheduling: a disk scheduling framework to overcome deceptive idleness in synchronous I/O", SOSP 2001). If whoever gave
way to it came back in between, it would compute its tokens again, only to give way again a few steps later.
"""

from dataclasses import dataclass

KEPT_STEPS = 4
"""A row for so many steps is what a tenant that does not come back costs: far less than recomputing a sequence."""


@dataclass(frozen=True, slots=True)
class Kept:
    """Until which step, and the blocks that go with the seat."""

    until: int
    blocks: int


class KeptSeats:
    """By tenant."""

    def __init__(self) -> None:
        self._kept: dict[str, Kept] = {}

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def tenants(self) -> list[str]:
        return list(self._kept)

    @property
    def blocks(self) -> int:
        return sum(kept.blocks for kept in self._kept.values())

    def keep(self, tenant_id: str, step: int, blocks: int) -> None:
        self._kept[tenant_id] = Kept(step + KEPT_STEPS, blocks)

    def give_back(self, tenant_id: str) -> None:
        del self._kept[tenant_id]

    def expire(self, step: float) -> None:
        self._kept = {tenant_id: kept for tenant_id, kept in self._kept.items() if step < kept.until}
