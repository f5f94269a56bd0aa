"""The adapters that the engine holds, and in which tier. The engine is asked at most once a second."""

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from loragate.adapter_store.publishing.all_published import Content
from loragate.engine.client.client import EngineClient
from loragate.engine.client.errors import EngineUnavailable
from loragate.v1 import engine_pb2 as pb

log = logging.getLogger(__name__)

Tier = Literal["device", "host", "disk", "none"]

_FRESH_SECONDS = 1.0
_PATIENCE_SECONDS = 1.0
_TIERS: Mapping[int, Tier] = {pb.TIER_DISK: "disk", pb.TIER_HOST: "host", pb.TIER_DEVICE: "device"}


@dataclass(frozen=True, slots=True)
class Holdings:
    """The adapters that the engine holds. `held` is None while they are not known."""

    held: Mapping[Content, pb.Held] | None = None

    def tier(self, tenant_id: str, digests: Iterable[str]) -> Tier | None:
        """Return the highest tier that holds one of these."""
        if self.held is None:
            return None
        found = [held.tier for digest in digests if (held := self.held.get((tenant_id, digest))) is not None]
        return _TIERS[max(found)] if found else "none"

    def pinned(self, tenant_id: str, digest: str) -> bool:
        """Return whether it is pinned to the device."""
        held = None if self.held is None else self.held.get((tenant_id, digest))
        return held is not None and held.pinned


class Residency:
    """One per process."""

    def __init__(self, client: EngineClient) -> None:
        self._client = client
        self._reading: asyncio.Task[Holdings] | None = None
        self._good_until = 0.0

    async def holdings(self) -> Holdings:
        """Return what the engine holds, at most a second old."""
        if self._reading is None or time.monotonic() >= self._good_until:
            self._good_until = time.monotonic() + _FRESH_SECONDS
            self._reading = asyncio.create_task(self._read(), name="residency")
        return await asyncio.shield(self._reading)

    async def _read(self) -> Holdings:
        if not self._client.ready:
            return Holdings()
        try:
            inventory = await self._client.inventory(timeout_seconds=_PATIENCE_SECONDS)
        except EngineUnavailable as error:
            log.debug("the engine's holdings are not known: %s", error)
            return Holdings()
        return Holdings({(each.adapter.tenant_id, each.adapter.digest): each for each in inventory.held})
