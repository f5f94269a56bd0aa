"""Reading of the engines' statistics for scrapes, at a negligible cost for them."""

import asyncio
import logging
import time
from collections.abc import Mapping

from loragate.engine.client.errors import EngineUnavailable
from loragate.engine.fleet.fleet import Fleet
from loragate.engine.fleet.member import Member
from loragate.v1 import engine_pb2 as pb

log = logging.getLogger(__name__)

_PATIENCE_SECONDS = 1.0
_FRESH_SECONDS = 0.5
_MAX_ROWS = 2000

EngineStats = Mapping[str, pb.StatsResponse | None]
"""The statistics of each engine of the fleet, by its id; None while it does not respond."""


class EngineStatsReader:
    """Reads the statistics. One per process."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._reading: asyncio.Task[EngineStats] | None = None
        self._good_until = 0.0

    async def shared(self) -> EngineStats:
        """Return the totals. Each engine is asked at most twice a second, however many callers there are."""
        if self._reading is None or time.monotonic() >= self._good_until:
            self._good_until = time.monotonic() + _FRESH_SECONDS
            self._reading = asyncio.create_task(self._read(pb.StatsRequest()))
        return await asyncio.shield(self._reading)

    async def detailed(self) -> EngineStats:
        """Return the current statistics, with a row for each adapter and tenant."""
        return await self._read(_DETAILED)

    async def detailed_of(self, member: Member) -> pb.StatsResponse | None:
        """Return those of one engine."""
        return await _stats(member, _DETAILED)

    async def _read(self, request: pb.StatsRequest) -> EngineStats:
        members = self._fleet.members
        found = await asyncio.gather(*(_stats(member, request) for member in members))
        return dict(zip((member.id for member in members), found, strict=True))


_DETAILED = pb.StatsRequest(adapter_rows=_MAX_ROWS, tenants=True)


async def _stats(member: Member, request: pb.StatsRequest) -> pb.StatsResponse | None:
    if not member.client.ready:
        return None
    try:
        return await member.client.stats(request, timeout_seconds=_PATIENCE_SECONDS)
    except EngineUnavailable as error:
        log.debug("no statistics from engine %s: %s", member.id, error)
        return None
