"""The service that an engine gave each tenant, as one client adds up its reports."""

from collections.abc import Iterable, Mapping

from loragate.v1 import engine_pb2 as pb


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
