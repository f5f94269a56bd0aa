"""The worker's link to the engine: which base model it serves, a trial of what was trained, and how busy it is."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from loragate.adapter_store.publishing.probe import engine_away, engine_refusal
from loragate.adapter_store.publishing.staging import StagedAdapter
from loragate.adapter_store.store import Store
from loragate.engine.client.adapter_probe import TrialFailed, try_adapter
from loragate.engine.client.client import AdapterBytes, EngineClient, EngineUnavailable
from loragate.v1 import engine_pb2 as pb

log = logging.getLogger(__name__)

_POLL_SECONDS = 0.2


class StoredAdapters:
    """Where the engine gets the bytes of what it is to try."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def open(self, tenant_id: str, digest: str) -> AdapterBytes:
        """See `engine.client.AdapterSource`."""
        stored = await self._store.open_adapter(tenant_id, digest)
        return AdapterBytes(stored.config_json, stored.tensors)


class EngineLink:
    """A started client of the engine's. As a callable it is a `Probe`: the trial is one of the tenant's requests."""

    def __init__(self, client: EngineClient) -> None:
        self.client = client

    async def manifest(self) -> pb.Manifest:
        """Of the base model, as soon as an engine serves one."""
        while True:
            try:
                if self.client.ready:
                    return await self.client.describe()
            except EngineUnavailable as error:
                log.info("waiting for the engine: %s", error)
            await asyncio.sleep(_POLL_SECONDS)

    async def __call__(self, tenant_id: str, staged: StagedAdapter) -> None:
        """See `adapter_store.probe.Probe`."""
        try:
            manifest = await self.client.describe()
        except EngineUnavailable as error:
            raise engine_away(str(error)) from error
        if manifest.base_digest != staged.base_digest:
            raise engine_away("it serves another base model by now")
        adapter = pb.AdapterRef(tenant_id=tenant_id, digest=staged.digest)
        try:
            await try_adapter(self.client, manifest, adapter, staged.own_tokens, pb.Share(tenant_id=tenant_id))
        except TrialFailed as failed:
            raise engine_refusal(failed.reason, non_finite=failed.non_finite, answered=failed.answered) from failed


@asynccontextmanager
async def connect_engine(target: str, store: Store) -> AsyncIterator[EngineLink]:
    """Connected, and again whenever the engine comes back, for as long as the block lasts."""
    client = EngineClient(target, StoredAdapters(store))
    await client.start()
    try:
        yield EngineLink(client)
    finally:
        await client.close()


POLL_SECONDS = 1.0
_LITTLE = 0.01  # its own trials, and its heartbeat's shadow


async def engine_loads(
    client: EngineClient, every: float = POLL_SECONDS, clock: Callable[[], float] = time.monotonic
) -> AsyncIterator[float]:
    """0 to 1, of the time since the last look; 0 for next to nothing, and while there is no engine."""
    before = clock(), await _computed(client)
    while True:
        await asyncio.sleep(every)
        now = clock(), await _computed(client)
        load = (now[1] - before[1]) / max(1e-9, now[0] - before[0])
        yield min(1.0, load) if load > _LITTLE else 0.0
        before = now


async def _computed(client: EngineClient) -> float:
    """Seconds of all steps together, since the engine started."""
    try:
        return (await client.stats(patience=5.0)).step_seconds.sum
    except EngineUnavailable:
        return 0.0
