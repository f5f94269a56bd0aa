"""The service that tenants receive, here and on the other engines of a fleet.

Without it, a tenant that floods three engines would receive three fair shares. Each engine reports what it has served,
clients add up the reports of the others, and each request carries the sum. An engine charges what the sum has grown by,
so that lost reports delay fairness, and repeated ones change nothing.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from loragate.v1 import engine_pb2 as pb

MAX_TENANTS = 4096
MAX_REPORTED = 256


class ServedUnits:
    """The units that this engine has served, by tenant. Thread-safe for one writer and one reader."""

    def __init__(self, max_tenants: int = MAX_TENANTS) -> None:
        self._max_tenants = max_tenants
        self._units: dict[str, float] = {}  # those served last at the end
        self._reported: dict[str, float] = {}

    def add(self, tenant_id: str, units: float) -> None:
        """Record units of service. A tenant that was forgotten begins at zero."""
        self._units[tenant_id] = self._units.pop(tenant_id, 0.0) + units
        if len(self._units) > self._max_tenants:
            del self._units[next(iter(self._units))]

    def changes(self) -> dict[str, float]:
        """Return the units of tenants that were served since the last call, of at most 256, those served most."""
        units, reported = self._units.copy(), self._reported
        growth = {each: now - reported.get(each, 0.0) for each, now in units.items() if now != reported.get(each)}
        most = sorted(growth, key=lambda each: -abs(growth[each]))[:MAX_REPORTED]
        changes = {each: units[each] for each in most}
        self._reported = {each: reported[each] for each in units if each in reported} | changes
        return changes


@dataclass(eq=False, slots=True)
class ServiceElsewhere:
    """The units that other engines gave a tenant while it was active on this one, as its clients saw it."""

    charged: float = 0.0
    _baselines: dict[int, float] = field(default_factory=dict)  # by session

    def growth(self, session_id: int, units: float) -> float:
        """Return how many of a session's units no session has named yet. The first of a session are its baseline."""
        baseline = self._baselines.setdefault(session_id, units - self.charged)
        grown = max(0.0, units - baseline - self.charged)
        self.charged += grown
        return grown

    def reset(self) -> None:
        """Forget everything: what a tenant receives elsewhere while it asks nothing of this engine is not charged."""
        self.charged = 0.0
        self._baselines.clear()


class ServedTotals:
    """Sums by tenant that only grow, also when the engine starts again and counts from zero."""

    def __init__(self) -> None:
        self._totals: dict[str, float] = {}
        self._last: dict[str, float] = {}  # of the session's reports

    @property
    def totals(self) -> Mapping[str, float]:
        """The units by tenant since the client began, as far as they were reported."""
        return self._totals

    def begin_session(self) -> None:
        """Note that the next reports are of an engine that may have restarted: each tenant's first is a baseline."""
        self._last.clear()

    def add_report(self, served: Iterable[pb.TenantService]) -> None:
        """Add what a report says beyond the last one."""
        for each in served:
            last = self._last.get(each.tenant_id, each.units)
            self._last[each.tenant_id] = each.units
            self._totals[each.tenant_id] = self._totals.get(each.tenant_id, 0.0) + max(0.0, each.units - last)
