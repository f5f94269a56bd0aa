"""The load of a whole fleet, in the terms of one engine's report."""

from loragate.engine.fleet.fleet import Fleet
from loragate.v1 import engine_pb2 as pb


class FleetLoad:
    """Combines the engines' load reports. The same object is returned until one of them has a new report."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._reports: list[pb.Load | None] = []
        self._combined: pb.Load | None = None

    def read(self) -> pb.Load | None:
        """Return the fleet's load; None while an engine has no queue, because requests go there."""
        reports = [member.client.load for member in self._fleet.ready_members]
        known = len(reports) == len(self._reports) and all(
            new is old for new, old in zip(reports, self._reports, strict=True)
        )
        if not known:
            self._reports, self._combined = reports, combined_load(reports)
        return self._combined


def combined_load(reports: list[pb.Load | None]) -> pb.Load | None:
    """Return the load of one engine that works off all queues as fast as these engines together."""
    loads = [load for load in reports if load is not None]
    if not loads or len(loads) < len(reports):
        return None
    if len(loads) == 1:
        return loads[0]
    queues: dict[str, pb.TenantQueue] = {}
    for load in loads:
        for queue in load.tenants:
            shared = queues.setdefault(queue.tenant_id, pb.TenantQueue(tenant_id=queue.tenant_id, weight=queue.weight))
            shared.seconds += queue.seconds / len(loads)
    listed = sum(queue.weight for queue in queues.values())
    return pb.Load(
        request_seconds=sum(load.request_seconds for load in loads) / len(loads) ** 2,
        active_weight=max(listed, *(load.active_weight for load in loads)),
        tenants=queues.values(),
    )
