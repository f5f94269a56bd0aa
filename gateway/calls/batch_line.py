"""Admission of a batch's lines.

The limits of requests do not apply to them, and nothing is shed: they wait. What a line used is not in the ledger until
its result is committed, in one transaction with it.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from loragate.adapter_store.usage.record import BATCH, UsageRecord
from loragate.gateway.calls.admission import CallAdmission, accounted, opened_record
from loragate.gateway.calls.call import Admitted
from loragate.gateway.calls.inference_request import InferenceRequest
from loragate.gateway.engine.link import EngineLink
from loragate.gateway.generation.service import GenerationService
from loragate.gateway.http.lifecycle import Lifecycle
from loragate.gateway.limits.lease import Lease
from loragate.gateway.metering.live_counters import Meter


class BatchLineAdmission(CallAdmission):
    """Admits the request of one line, once."""

    def __init__(self, generation: GenerationService, link: EngineLink, lifecycle: Lifecycle) -> None:
        super().__init__(generation, link, lifecycle)
        self._used: asyncio.Future[UsageRecord] | None = None

    async def usage(self) -> UsageRecord | None:
        """Return what the request used, once the engine has ended it too; None if it was not admitted."""
        return None if self._used is None else await self._used

    @asynccontextmanager
    async def _admitted(self, request: InferenceRequest) -> AsyncIterator[Admitted]:
        used = self._used = asyncio.get_running_loop().create_future()
        base_model = self._link.base.id
        opened = opened_record(request, base_model)
        opened = replace(opened, endpoint=f"{BATCH}{request.endpoint}")
        meter = Meter(opened, None, lambda record, _: _set(used, record))
        async with accounted(request, base_model, Lease(request.reserve, {}), meter, self._lifecycle) as admitted:
            yield admitted


def _set(used: "asyncio.Future[UsageRecord]", record: UsageRecord) -> None:
    """Set the record, without the times of a request that somebody waited for."""
    if not used.done():
        used.set_result(replace(record, ttft_ms=None))
