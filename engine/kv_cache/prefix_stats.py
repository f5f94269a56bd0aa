"""Counters of the prompt tokens found in the cache, in total and by tenant."""

from collections.abc import Mapping
from dataclasses import dataclass

MAX_TENANTS = 1024
"""Tenants counted individually; the one that was idle longest is evicted and stays in the total."""


@dataclass(frozen=True, slots=True)
class PrefixCounts:
    """Prompt tokens since the start. With n completions a prompt is looked up n times."""

    looked_up: int = 0
    from_device: int = 0
    from_host: int = 0

    def __add__(self, other: "PrefixCounts") -> "PrefixCounts":
        return PrefixCounts(
            self.looked_up + other.looked_up,
            self.from_device + other.from_device,
            self.from_host + other.from_host,
        )


@dataclass(frozen=True, slots=True)
class PrefixStats:
    """The state of the prefix cache at one moment. Evictions are in blocks."""

    total: PrefixCounts
    tenants: Mapping[str, PrefixCounts]
    device_evictions: int  # evicted from the device, whether the host tier took them or not
    host_evictions: int  # dropped to make room in the host tier
    host_bytes_used: int
    host_bytes: int


class PrefixCounters:
    """Counters written by the step thread; a snapshot may be taken on any thread."""

    def __init__(self) -> None:
        self.total = PrefixCounts()
        self.device_evictions = 0
        self.host_evictions = 0
        self._tenants: dict[str, PrefixCounts] = {}  # idle longest first

    @property
    def tenants(self) -> dict[str, PrefixCounts]:
        return self._tenants.copy()

    def add(self, tenant_id: str, counts: PrefixCounts) -> None:
        self.total += counts
        self._tenants[tenant_id] = self._tenants.pop(tenant_id, PrefixCounts()) + counts
        if len(self._tenants) > MAX_TENANTS:
            del self._tenants[next(iter(self._tenants))]
