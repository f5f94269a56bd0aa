"""The limit of a tenant's changes of its own adapters, files, jobs and keys.

Each change is written to the database and to the audit log. Reads and inference are not counted.
"""

import time

from loragate.gateway.errors import TooManyRequests
from loragate.gateway.limits.windows import Bucket

_MINUTE = 60_000_000.0  # microseconds, as in `Bucket`
_SWEEP_AT = 10_000  # buckets; empty ones are forgotten then


class ChangeLimiter:
    """One per process; None is unlimited. Each tenant's bucket holds a minute's worth."""

    def __init__(self, per_minute: int | None) -> None:
        self._per_minute = per_minute
        self._buckets: dict[str, Bucket] = {}

    def charge(self, tenant_id: str) -> None:
        """Count a change. Raise TooManyRequests if the tenant has made too many."""
        if self._per_minute is None:
            return
        now, cost = time.monotonic() * 1e6, _MINUTE / self._per_minute
        bucket = self._bucket(tenant_id, now)
        excess = bucket.backlog(now) + cost - _MINUTE
        if excess > 1:  # rounding is less
            raise TooManyRequests(
                f"This tenant may make {self._per_minute} changes per minute; send this one again later.",
                retry_after=excess / 1e6,
            )
        bucket.charge(now, cost)

    def _bucket(self, tenant_id: str, now: float) -> Bucket:
        if len(self._buckets) >= _SWEEP_AT and tenant_id not in self._buckets:
            self._buckets = {key: bucket for key, bucket in self._buckets.items() if bucket.backlog(now)}
        return self._buckets.setdefault(tenant_id, Bucket())
