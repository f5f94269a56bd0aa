"""Reading of the engine's statistics for scrapes, at a negligible cost for the engine."""

import asyncio
import logging
import time

from loragate.engine.client.errors import EngineUnavailable
from loragate.gateway.engine.link import EngineLink
from loragate.v1 import engine_pb2 as pb

log = logging.getLogger(__name__)

_PATIENCE_SECONDS = 1.0
_FRESH_SECONDS = 0.5
_MAX_ROWS = 2000


class EngineStatsReader:
    """Reads the statistics. One per process."""

    def __init__(self, link: EngineLink) -> None:
        self._link = link
        self._reading: asyncio.Task[pb.StatsResponse | None] | None = None
        self._good_until = 0.0

    async def shared(self) -> pb.StatsResponse | None:
        """Return the totals; None while the engine does not respond. The engine is asked at most twice a second,
        however many callers there are."""
        if self._reading is None or time.monotonic() >= self._good_until:
            self._good_until = time.monotonic() + _FRESH_SECONDS
            self._reading = asyncio.create_task(self._read(pb.StatsRequest()))
        return await asyncio.shield(self._reading)

    async def detailed(self) -> pb.StatsResponse | None:
        """Return the current statistics, with a row for each adapter and tenant."""
        return await self._read(pb.StatsRequest(adapter_rows=_MAX_ROWS, tenants=True))

    async def _read(self, request: pb.StatsRequest) -> pb.StatsResponse | None:
        if not self._link.client.ready:
            return None
        try:
            return await self._link.client.stats(request, timeout_seconds=_PATIENCE_SECONDS)
        except EngineUnavailable as error:
            log.debug("no statistics from the engine: %s", error)
            return None
