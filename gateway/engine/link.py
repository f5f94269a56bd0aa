"""What this process knows about the engine: whether it answers, and which base model it serves.

The base model outlives the engine: it is kept in the store, so that requests are checked, adapters are taken in and
prompts are tokenised while the engine is down.
"""

import asyncio
import logging
from collections.abc import Callable

from loragate.adapter_store.errors import StoreError
from loragate.adapter_store.store import Store
from loragate.engine.client.client import EngineClient, EngineUnavailable
from loragate.gateway.errors import Unavailable
from loragate.gateway.resilience.timeouts import cancel_and_wait, wait_for_event
from loragate.gateway.text.base_model import BaseModel, read_base_model
from loragate.v1 import engine_pb2 as pb

log = logging.getLogger(__name__)

ENGINE_ID = "engine-0"  # of the one that there is
_LOOK_SECONDS = 0.1
_SOON_SECONDS = 0.01  # while it is awaited
_RETRY_SECONDS = 1.0


class EngineLink:
    """Watches the engine's client: each time it connects, the manifest is read anew and stored.

    `changed` is told when requests can be served (True), and when they no longer can (False).
    """

    def __init__(
        self,
        client: EngineClient,
        store: Store,
        tool_parser: str | None,
        changed: Callable[[bool], None] = lambda ready: None,
    ) -> None:
        self.client = client
        self._store = store
        self._tool_parser = tool_parser
        self._changed = changed
        self._base: BaseModel | None = None
        self._fresh = asyncio.Event()  # the base model is that of the running engine
        self._watch: asyncio.Task[None] | None = None

    @property
    def ready(self) -> bool:
        """The engine answers, and requests are tokenised for the model that it serves."""
        return self._fresh.is_set() and self.client.ready

    @property
    def base(self) -> BaseModel:
        """The base model last seen. Raises Unavailable while none ever was."""
        if self._base is None:
            raise Unavailable("The engine has not described its base model yet.", code="base_model_unknown")
        return self._base

    def require_base(self) -> None:
        """Raise Unavailable while no base model is known."""
        _ = self.base

    @property
    def manifest(self) -> pb.Manifest | None:
        """Of the base model last seen."""
        return None if self._base is None else self._base.manifest

    async def start(self) -> None:
        """Take up the stored base model, and begin to connect. Returns at once, engine or not."""
        stored = await self._store.manifest()
        if stored is not None:
            await self._take_up(stored)
        await self.client.start()
        self._watch = asyncio.create_task(self._keep_fresh(), name="engine-link")

    async def connected(self, patience: float) -> None:
        """Returns when requests can be served, at the latest after so many seconds."""
        await wait_for_event(self._fresh, patience)

    async def close(self) -> None:
        """End the session with the engine."""
        if self._watch is not None:
            await cancel_and_wait(self._watch)
        await self.client.close()

    async def _keep_fresh(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_SECONDS if self._fresh.is_set() else _SOON_SECONDS)
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
            await self._take_up(manifest)
            await self._store.publish_manifest(manifest)
        except (EngineUnavailable, StoreError, ValueError) as error:
            log.warning("cannot take up the engine's base model: %s", error)
            return False
        return True

    async def _take_up(self, manifest: pb.Manifest) -> None:
        known = self._base is not None and self._base.manifest == manifest
        if not known:
            self._base = await asyncio.to_thread(read_base_model, manifest, self._tool_parser)
