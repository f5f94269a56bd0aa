"""Usage that is recorded together with the result of its request, not when the request ends."""

import asyncio

from loragate.adapter_store.usage.record import UsageRecord
from loragate.gateway.limits.operations import LeaseRecord
from loragate.gateway.metering.live_counters import Meter


class DeferredUsage:
    """Opens the meters of one request, which may be admitted again after it was rejected or failed."""

    def __init__(self) -> None:
        self._used: asyncio.Future[UsageRecord] | None = None

    def open(self, record: UsageRecord, lease: LeaseRecord | None = None) -> Meter:
        """Return a meter whose record is `usage`. Other processes do not settle the lease: it expires."""
        used = self._used = asyncio.get_running_loop().create_future()
        return Meter(record, None, lambda ended, _: None if used.done() else used.set_result(ended))

    async def usage(self) -> UsageRecord | None:
        """Return what the request used, once the engine has ended it too; None if it was not admitted."""
        return None if self._used is None else await self._used
