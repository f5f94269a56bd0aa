"""The adapters that the engines hold, and in which tier. Each engine is asked at most once a second."""

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from loragate.adapter_store.publishing.all_published import Content
from loragate.engine.client.errors import EngineUnavailable
from loragate.engine.fleet.fleet import Fleet
from loragate.engine.fleet.member import Member
from loragate.v1 import engine_pb2 as pb

log = logging.getLogger(__name__)

HeldTier = Literal["device", "host", "disk"]
Tier = HeldTier | Literal["none"]

_FRESH_SECONDS = 1.0
_PATIENCE_SECONDS = 1.0
_TIERS: Mapping[int, HeldTier] = {pb.TIER_DISK: "disk", pb.TIER_HOST: "host", pb.TIER_DEVICE: "device"}


@dataclass(frozen=True, slots=True)
class HeldBy:
    """An engine that holds an adapter."""

    engine_id: str
    tier: HeldTier
    pinned: bool


@dataclass(frozen=True, slots=True)
class Holdings:
    """The adapters that each engine holds, by its id. None are known while no engine responds."""

    held: Mapping[str, Mapping[Content, pb.Held]] = field(default_factory=dict)

    def tier(self, tenant_id: str, digests: Iterable[str]) -> Tier | None:
        """Return the highest tier in which an engine holds one of these."""
        if not self.held:
            return None
        wanted = [(tenant_id, digest) for digest in digests]
        found = [each[content].tier for each in self.held.values() for content in wanted if content in each]
        return _TIERS[max(found)] if found else "none"

    def engines(self, tenant_id: str, digest: str) -> list[HeldBy]:
        """Return the engines that hold it."""
        found = [(id_, held.get((tenant_id, digest))) for id_, held in self.held.items()]
        return [HeldBy(id_, _TIERS[each.tier], each.pinned) for id_, each in found if each is not None]


class Residency:
    """One per process."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._reading: asyncio.Task[Holdings] | None = None
        self._good_until = 0.0

    async def holdings(self) -> Holdings:
        """Return what the engines hold, at most a second old."""
        if self._reading is None or time.monotonic() >= self._good_until:
            self._good_until = time.monotonic() + _FRESH_SECONDS
            self._reading = asyncio.create_task(self._read(), name="residency")
        return await asyncio.shield(self._reading)

    async def _read(self) -> Holdings:
        members = self._fleet.ready_members
        found = await asyncio.gather(*map(_held, members))
        by_id = zip((member.id for member in members), found, strict=True)
        return Holdings({id_: held for id_, held in by_id if held is not None})


async def _held(member: Member) -> Mapping[Content, pb.Held] | None:
    try:
        return await member.holdings(timeout_seconds=_PATIENCE_SECONDS)
    except EngineUnavailable as error:
        log.debug("the holdings of engine %s are not known: %s", member.id, error)
        return None
