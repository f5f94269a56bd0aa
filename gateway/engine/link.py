"""The link to the engine: whether it responds, and which base model it serves.

The base model is kept in the store, so that requests can be checked, adapters accepted and prompts tokenized while the
engine is down.
"""

import asyncio
import logging
from collections.abc import Callable

from loragate.adapter_store.errors import StoreError
from loragate.adapter_store.store import Store
from loragate.engine.client.client import EngineClient
from loragate.engine.client.errors import EngineUnavailable
from loragate.gateway.errors import Unavailable
from loragate.gateway.resilience.timeouts import cancel_and_wait, wait_for_event
from loragate.gateway.text.base_model import BaseModel, read_base_model
from loragate.v1 import engine_pb2 as pb

log = logging.getLogger(__name__)

ENGINE_ID = "engine-0"  # there is only one
_POLL_SECONDS = 0.1
_CONNECT_POLL_SECONDS = 0.01  # while waiting for it
_RETRY_SECONDS = 1.0


class EngineLink:
    """Watches the engine's client: each time it connects, the manifest is read and stored again.

    `changed` is called with True when requests can be served, and with False when they no longer can.
    """

    def __init__(
        self,
        client: EngineClient,
        store: Store,
        tool_parser: str | None,
        reasoning_parser: str | None,
        changed: Callable[[bool], None] = lambda ready: None,
    ) -> None:
        self.client = client
        self._store = store
        self._parsers = (tool_parser, reasoning_parser)
        self._changed = changed
        self._base: BaseModel | None = None
        self._fresh = asyncio.Event()  # the base model is that of the running engine
        self._watch: asyncio.Task[None] | None = None

    @property
    def ready(self) -> bool:
        """Whether the engine responds, and requests are tokenized for the model that it serves."""
        return self._fresh.is_set() and self.client.ready

    @property
    def base(self) -> BaseModel:
        """The base model last seen. Raise Unavailable if none has been seen yet."""
        if self._base is None:
            raise Unavailable("The engine has not described its base model yet.", code="base_model_unknown")
        return self._base

    def require_base(self) -> None:
        """Raise Unavailable if no base model has been seen yet."""
        _ = self.base

    def require_ready(self) -> None:
        """Raise Unavailable unless `ready`."""
        if not self.ready:
            raise Unavailable("The engine is not available at the moment.", code="engine_unavailable")

    @property
    def manifest(self) -> pb.Manifest | None:
        """The manifest of the base model last seen, or None."""
        return None if self._base is None else self._base.manifest

    async def start(self) -> None:
        """Load the stored base model and begin to connect. Returns at once, whether there is an engine or not."""
        stored = await self._store.manifest()
        if stored is not None:
            await self._update(stored)
        await self.client.start()
        self._watch = asyncio.create_task(self._keep_fresh(), name="engine-link")

    async def connected(self, patience: float) -> None:
        """Wait until requests can be served, but at most `patience` seconds."""
        await wait_for_event(self._fresh, patience)

    async def close(self) -> None:
        """End the session with the engine."""
        if self._watch is not None:
            await cancel_and_wait(self._watch)
        await self.client.close()

    async def _keep_fresh(self) -> None:
        while True:
            await asyncio.sleep(_POLL_SECONDS if self._fresh.is_set() else _CONNECT_POLL_SECONDS)
            if not self.client.ready:
                if self._fresh.is_set():
                    self._fresh.clear()
                    self._changed(False)
            elif not self._fresh.is_set():
                if await self._refresh():
                    self._fresh.set()
                    self._changed(True)
                else:
                    await asyncio.sleep(_RETRY_SECONDS)

    async def _refresh(self) -> bool:
        try:
            manifest = await self.client.describe()
            await self._update(manifest)
            await self._store.publish_manifest(manifest)
        except (EngineUnavailable, StoreError, ValueError) as error:
            log.warning("cannot read the engine's base model: %s", error)
            return False
        return True

    async def _update(self, manifest: pb.Manifest) -> None:
        known = self._base is not None and self._base.manifest == manifest
        if not known:
            self._base = await asyncio.to_thread(read_base_model, manifest, *self._parsers)
