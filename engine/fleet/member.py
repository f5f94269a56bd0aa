"""One engine of a fleet, as one process sees it."""

import asyncio
import logging
import math
from collections.abc import Iterable
from time import monotonic

from loragate.engine.client.client import CALL_SECONDS, EngineClient
from loragate.engine.client.errors import EngineUnavailable
from loragate.engine.fleet.addresses import EngineAddress
from loragate.engine.fleet.placement import AdapterId, Candidate
from loragate.v1 import engine_pb2 as pb

log = logging.getLogger(__name__)

_MAX_HELD = 1 << 14
_MAX_REPLICAS = 256
_FETCH_SECONDS = 60.0  # after which a fetch is requested again
_LOOK_SECONDS = 0.5
_INVENTORY_SECONDS = 1.0


class Member:
    """An engine's client, and what this process knows of the engine."""

    def __init__(self, address: EngineAddress, client: EngineClient) -> None:
        self.id = address.id
        self.address = address
        self.client = client
        self.manifest: pb.Manifest | None = None  # of the running engine, once the fleet uses it
        self.rejection: str | None = None  # why the fleet does not use it
        self.requests = 0  # of this process, on this engine
        self.idle = asyncio.Event()  # there are none
        self.idle.set()
        self.held: dict[AdapterId, None] = {}  # adapters whose bytes are there, those noted last at the end
        self._desired: list[pb.AdapterRef] = []  # adapters to have there by the store
        self._replicas: dict[AdapterId, float] = {}  # adapters to have there by demand, with when requested
        self._next_look = 0.0  # at what it has fetched
        self._load: pb.Load | None = None
        self._queue_seconds = 0.0
        self._sent = 0  # requests since the last load report

    @property
    def ready(self) -> bool:
        """Whether it can be sent requests."""
        return self.manifest is not None and self.client.ready

    @property
    def state(self) -> str:
        """ "ok", or why it cannot be sent requests."""
        return "ok" if self.ready else self.rejection or "not connected"

    def begin(self) -> None:
        """Count a request that is sent to it."""
        self.requests += 1
        self._sent += 1
        self.idle.clear()

    def end(self) -> None:
        """Count the end of a request."""
        self.requests -= 1
        if not self.requests:
            self.idle.set()

    def lose(self) -> None:
        """Forget what is known of the engine, as it is no longer connected."""
        self.manifest = None
        self.held.clear()

    def candidate(self) -> Candidate:
        """Return its load, as placement sees it."""
        load = self.client.load
        if load is not self._load:
            self._load, self._sent = load, 0
            self._queue_seconds = sum(queue.seconds for queue in load.tenants) if load is not None else 0.0
        expected = self._sent * load.request_seconds if load is not None else 0.0
        slots = self.manifest.adapter_slots if self.manifest is not None else 1
        return Candidate(self.id, self._queue_seconds + expected, self.requests, slots)

    def note_held(self, adapter: AdapterId) -> None:
        """Note that the adapter's bytes are there."""
        self.held[adapter] = None
        if len(self.held) > _MAX_HELD:
            del self.held[next(iter(self.held))]

    def fetch(self, adapter: AdapterId) -> None:
        """Bring the adapter's bytes to the engine's disk, unless they are there or requested already."""
        now = monotonic()
        if adapter in self.held or self._replicas.get(adapter, -math.inf) > now - _FETCH_SECONDS:
            return
        self._replicas.pop(adapter, None)
        self._replicas[adapter] = now
        if len(self._replicas) > _MAX_REPLICAS:
            del self._replicas[next(iter(self._replicas))]
        self._prefetch()

    def keep(self, pinned: Iterable[pb.AdapterRef], desired: Iterable[pb.AdapterRef]) -> None:
        """Have these adapters on the device and on the disk, in place of those given before."""
        self._desired = list(desired)
        self.client.pin(pinned)
        self._prefetch()

    def retire(self, adapters: Iterable[pb.AdapterRef]) -> None:
        """Report deleted adapters to the engine."""
        adapters = list(adapters)
        for each in adapters:
            self.held.pop((each.tenant_id, each.digest), None)
            self._replicas.pop((each.tenant_id, each.digest), None)
        self.client.retire(adapters)

    async def holdings(self, *, timeout_seconds: float = CALL_SECONDS) -> dict[AdapterId, pb.Held]:
        """Return what the engine holds of each adapter. Raise EngineUnavailable."""
        inventory = await self.client.inventory(timeout_seconds=timeout_seconds)
        return {(each.adapter.tenant_id, each.adapter.digest): each for each in inventory.held}

    async def look_for_fetched(self) -> None:
        """Note those of the adapters to fetch that have arrived, if any are missing."""
        now = monotonic()
        fetching = {each for each, since in self._replicas.items() if since > now - _FETCH_SECONDS} - self.held.keys()
        if not fetching or now < self._next_look:
            return
        self._next_look = now + _LOOK_SECONDS
        try:
            held = await self.holdings(timeout_seconds=_INVENTORY_SECONDS)
        except EngineUnavailable as error:
            log.debug("the holdings of engine %s are not known: %s", self.id, error)
            return
        for each in fetching & held.keys():
            self.note_held(each)

    def _prefetch(self) -> None:
        desired = [(each.tenant_id, each.digest) for each in self._desired]
        refs = dict.fromkeys([*desired, *self._replicas])
        self.client.prefetch(pb.AdapterRef(tenant_id=tenant_id, digest=digest) for tenant_id, digest in refs)
