"""The service that each tenant received: the virtual token counter of Sheng et al., "Fairness in Serving Large Language
Models", OSDI 2024, arXiv:2401.00588.

A counter grows with each token that is computed for its tenant, divided by the tenant's weight; the tenant with the
lowest counter comes first. Service is counted in units: one for a prompt token, two for a generated token (the paper's
weights), times the request's token cost (see `adapters.token_cost`).
"""

import heapq
from dataclasses import dataclass, field

from loragate.engine.runtime.lazy_heap import LazyHeap
from loragate.engine.sequence.request import Share
from loragate.engine.served_units import ServedUnits, ServiceElsewhere


@dataclass(eq=False, slots=True)
class TenantCounter:
    """The service of one tenant, or of its `batch` requests. `counter` is in units of service divided by the weight."""

    tenant_id: str
    weight: float = 1.0
    counter: float = 0.0
    pending: float = 0.0  # units: seated prompts that are not computed yet
    sequences: int = 0  # seated and waiting
    seated: int = 0
    backlog: float = 0.0  # units that its waiting sequences are expected to take
    elsewhere: ServiceElsewhere = field(default_factory=ServiceElsewhere)
    batch: bool = False

    @property
    def turn(self) -> tuple[bool, float]:
        """The sort key by which seats are given: batches come behind all others."""
        return self.batch, self.claim

    @property
    def claim(self) -> float:
        """The counter as it will be once the seated prompts are computed.

        Seats are given by this value, or else a tenant could take all seats of a step before any of them is charged.
        """
        return self.counter + self.pending / self.weight

    @property
    def waiting(self) -> int:
        return self.sequences - self.seated

    def charge(self, units: float) -> None:
        self.counter += units / self.weight


class VirtualTokenCounters:
    """The counters of all tenants, for `batch` requests or for the others. Those of idle tenants are kept only while
    they are ahead of the active ones."""

    def __init__(self, *, batch: bool = False) -> None:
        self._batch = batch
        self._tenants: dict[str, TenantCounter] = {}
        self._active: LazyHeap[TenantCounter] = LazyHeap(lambda tenant: tenant.counter)
        self._idle: list[tuple[float, str]] = []
        self._last_left = 0.0  # the counter of the tenant that left last
        self.active_weight = 0.0
        self.served = ServedUnits()

    def __len__(self) -> int:
        return len(self._tenants)

    def all(self) -> list[TenantCounter]:
        """Return a copy of all counters. Thread-safe."""
        return list(self._tenants.values())

    def open(self) -> list[TenantCounter]:
        """Return the tenants with open sequences, those with the longest queues first. Thread-safe."""
        active = (tenant for tenant in self.all() if tenant.sequences)
        return sorted(active, key=lambda tenant: (-tenant.waiting, -tenant.seated, tenant.tenant_id))

    def find(self, tenant_id: str) -> TenantCounter | None:
        return self._tenants.get(tenant_id)

    def charge(self, tenant: TenantCounter, units: float) -> None:
        """Charge a tenant for units that are computed for it here."""
        tenant.charge(units)
        self.served.add(tenant.tenant_id, units)

    def enter(self, share: Share, session_id: int = 0) -> TenantCounter:
        """Register a new sequence of a tenant, and charge it for what it received elsewhere since its last one.

        The counter of a tenant that was idle is raised to the lowest counter of the active ones, so that idling does
        not save up service.
        """
        tenant = self._tenants.setdefault(share.tenant_id, TenantCounter(share.tenant_id, batch=self._batch))
        if tenant.sequences == 0:
            tenant.counter = max(tenant.counter, self.level)
            tenant.elsewhere.reset()
            self._active.add(tenant)
        else:
            self.active_weight -= tenant.weight
        tenant.weight = share.weight
        tenant.charge(tenant.elsewhere.growth(session_id, share.elsewhere))
        self.active_weight += tenant.weight
        tenant.sequences += 1
        return tenant

    def leave(self, tenant: TenantCounter) -> None:
        """Register the end of a sequence of this tenant."""
        tenant.sequences -= 1
        if tenant.sequences == 0:
            tenant.pending = tenant.backlog = 0.0  # removes the rounding errors of many sums
            self._active.discard(tenant)
            self._last_left = max(self._last_left, tenant.counter)
            self.active_weight = self.active_weight - tenant.weight if len(self._active) else 0.0
            heapq.heappush(self._idle, (tenant.counter, tenant.tenant_id))
            self._discard_idle()

    @property
    def waiting(self) -> int:
        """The number of sequences that wait."""
        return sum(tenant.waiting for tenant in self._tenants.values())

    @property
    def level(self) -> float:
        """The lowest counter of the active tenants; if there are none, that of the tenant that left last."""
        least = self._active.first()
        return self._last_left if least is None else least.counter

    def _discard_idle(self) -> None:
        """Discard counters that a return would raise anyway."""
        level = self.level
        while self._idle and self._idle[0][0] <= level:
            counter, tenant_id = heapq.heappop(self._idle)
            tenant = self._tenants.get(tenant_id)
            if tenant is not None and tenant.sequences == 0 and tenant.counter == counter:
                del self._tenants[tenant_id]


class LaneCounters:
    """The counters of both lanes: of batches, and of all other requests."""

    def __init__(self) -> None:
        self.interactive = VirtualTokenCounters()
        self.batches = VirtualTokenCounters(batch=True)

    def enter(self, share: Share, session_id: int) -> TenantCounter:
        """See `VirtualTokenCounters.enter`."""
        return (self.batches if share.batch else self.interactive).enter(share, session_id)

    def leave(self, tenant: TenantCounter) -> None:
        """See `VirtualTokenCounters.leave`."""
        self._of(tenant).leave(tenant)

    def charge(self, tenant: TenantCounter, units: float) -> None:
        """See `VirtualTokenCounters.charge`."""
        self._of(tenant).charge(tenant, units)

    def _of(self, tenant: TenantCounter) -> VirtualTokenCounters:
        return self.batches if tenant.batch else self.interactive
