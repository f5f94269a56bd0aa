"""The worker's link to the engines: the base model that they serve, trials of trained adapters, and their load."""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

from loragate.adapter_store.publishing.probe import engine_rejection, engine_unavailable
from loragate.adapter_store.publishing.staging import StagedAdapter
from loragate.adapter_store.store import Store
from loragate.engine.client.adapter_probe import TrialFailed, try_adapter
from loragate.engine.client.client import EngineClient
from loragate.engine.client.errors import EngineUnavailable
from loragate.engine.client.session import AdapterBytes
from loragate.engine.fleet.addresses import EngineAddress, engine_addresses
from loragate.engine.fleet.connector import connector
from loragate.engine.fleet.fleet import Fleet
from loragate.engine.fleet.registry import RegistryFollower
from loragate.engine.link_security import LinkTls
from loragate.v1 import engine_pb2 as pb

log = logging.getLogger(__name__)

_RETRY_SECONDS = 0.2
_HELD_BYTES = 256 << 20  # of adapters that engines may ask for at once
LOAD_INTERVAL_SECONDS = 1.0
_MIN_LOAD = 0.01  # less is our own trials and heartbeats


class LinkConfig(Protocol):
    """The part of a configuration that says where the engines are."""

    @property
    def engine_target(self) -> str | None: ...
    @property
    def engines(self) -> tuple[EngineAddress, ...]: ...
    @property
    def engine_secret(self) -> str: ...
    @property
    def previous_engine_secrets(self) -> tuple[str, ...]: ...
    @property
    def engine_tls(self) -> LinkTls | None: ...


class StoredAdapters:
    """The source of the adapters that engines ask for: the store, and what this process has just stored there."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._held: OrderedDict[tuple[str, str], tuple[bytes, bytes]] = OrderedDict()

    def hold(self, tenant_id: str, digest: str, config_json: bytes, tensors: bytes) -> None:
        """Keep the files of a stored adapter in memory until others need the space."""
        self._held[tenant_id, digest] = config_json, tensors
        while sum(len(file) for files in self._held.values() for file in files) > _HELD_BYTES:
            self._held.popitem(last=False)

    async def open(self, tenant_id: str, digest: str) -> AdapterBytes:
        """See `engine.client.AdapterSource`."""
        held = self._held.pop((tenant_id, digest), None)
        if held is not None:
            config_json, tensors = held
            return AdapterBytes(config_json, _once(tensors))
        stored = await self._store.open_adapter(tenant_id, digest)
        return AdapterBytes(stored.config_json, stored.tensors)


async def _once(tensors: bytes) -> AsyncIterator[bytes]:
    yield tensors


class EngineLink:
    """A started fleet. Called, it is a `Probe`: the trial counts as one of the tenant's requests."""

    def __init__(self, fleet: Fleet, source: StoredAdapters) -> None:
        self._fleet = fleet
        self._source = source

    def clients(self) -> list[EngineClient]:
        """Return the clients of the engines that respond."""
        return [member.client for member in self._fleet.ready_members]

    def preload(self, tenant_id: str, digest: str, config_json: bytes, tensors: bytes) -> None:
        """Begin to bring a stored adapter to the engine that will serve it, before anyone requests it."""
        member = self._fleet.home((tenant_id, digest))
        if member is not None:
            self._source.hold(tenant_id, digest, config_json, tensors)
            member.client.preload([pb.AdapterRef(tenant_id=tenant_id, digest=digest)])

    async def manifest(self) -> pb.Manifest:
        """Return the base model's manifest, once an engine serves one."""
        while True:
            manifest = self._fleet.manifest
            if manifest is not None:
                return manifest
            await asyncio.sleep(_RETRY_SECONDS)

    async def __call__(self, tenant_id: str, staged: StagedAdapter) -> None:
        """See `adapter_store.probe.Probe`."""
        manifest = self._fleet.manifest
        if manifest is None:
            raise engine_unavailable("the engine does not respond")
        if manifest.base_digest != staged.base_digest:
            raise engine_unavailable("it now serves another base model")
        adapter = pb.AdapterRef(tenant_id=tenant_id, digest=staged.digest)
        try:
            await try_adapter(
                self._fleet,
                manifest,
                adapter,
                staged.own_tokens,
                pb.Share(tenant_id=tenant_id),
                classifies=staged.classifier is not None,
            )
        except TrialFailed as failed:
            raise engine_rejection(failed.reason, non_finite=failed.non_finite, answered=failed.answered) from failed


@asynccontextmanager
async def connect_engine(config: LinkConfig, store: Store) -> AsyncIterator[EngineLink]:
    """Connect to the engines, and reconnect whenever one returns, while the block runs."""
    source = StoredAdapters(store)
    connect = connector(
        source,
        secret=config.engine_secret,
        previous_secrets=config.previous_engine_secrets,
        tls=config.engine_tls,
    )
    configured = engine_addresses(config.engine_target, config.engines)
    fleet = Fleet(configured, connect)
    await fleet.start()
    registry = RegistryFollower(fleet, configured, store.engine_leases.all, config.engine_tls)
    following = asyncio.create_task(registry.run(), name="engine-registry")
    try:
        yield EngineLink(fleet, source)
    finally:
        following.cancel()
        await asyncio.wait([following])
        await fleet.close()


async def engine_loads(
    clients: Callable[[], Sequence[EngineClient]],
    every: float = LOAD_INTERVAL_SECONDS,
    clock: Callable[[], float] = time.monotonic,
) -> AsyncIterator[float]:
    """Yield the fraction of each interval in which engines computed; 0 for next to nothing or without an engine."""
    before = clock(), await _compute_seconds(clients())
    while True:
        await asyncio.sleep(every)
        now = clock(), await _compute_seconds(clients())
        load = (now[1] - before[1]) / max(1e-9, now[0] - before[0])
        yield min(1.0, load) if load > _MIN_LOAD else 0.0
        before = now


async def _compute_seconds(clients: Sequence[EngineClient]) -> float:
    """Return the total time of all steps since the engines started."""
    return sum(await asyncio.gather(*map(_seconds_of, clients)))


async def _seconds_of(client: EngineClient) -> float:
    try:
        return (await client.stats(timeout_seconds=5.0)).step_seconds.sum
    except EngineUnavailable:
        return 0.0
