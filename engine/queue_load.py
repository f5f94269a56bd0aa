"""How much work waits in the engine, for those who decide whether to send more."""

from collections.abc import Iterable
from dataclasses import dataclass

from loragate.engine.scheduling.virtual_counters import Account


@dataclass(frozen=True, slots=True)
class TenantQueue:
    """One tenant with open requests. `seconds` of the whole engine's time its waiting ones will take."""

    tenant_id: str
    weight: float
    seconds: float


@dataclass(frozen=True, slots=True)
class QueueLoad:
    """`request_seconds` of the whole engine's time a waiting request takes on average. Tenants who wait the longest,
    each at its share of the engine, come first. Nobody waits: there are no tenants."""

    request_seconds: float = 0.0
    active_weight: float = 0.0
    tenants: tuple[TenantQueue, ...] = ()


def queue_load(accounts: Iterable[Account], active_weight: float, units_per_second: float, most: int) -> QueueLoad:
    """At the rate at which the engine served while others waited. At most so many tenants are named."""
    active = [account for account in accounts if account.sequences]
    waiting = sum(account.waiting for account in active)
    if not waiting or not units_per_second:
        return QueueLoad()
    active.sort(key=lambda account: account.backlog / account.weight, reverse=True)
    return QueueLoad(
        sum(account.backlog for account in active) / waiting / units_per_second,
        active_weight,
        tuple(TenantQueue(a.tenant_id, a.weight, a.backlog / units_per_second) for a in active[:most]),
    )
