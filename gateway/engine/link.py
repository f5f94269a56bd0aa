"""The link to the engines: whether one responds, and which base model they serve.

The base model is kept in the store, so that requests can be checked, adapters accepted and prompts tokenized while no
engine runs.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

from loragate.adapter_store.errors import StoreError
from loragate.adapter_store.store import Store
from loragate.engine.fleet.addresses import EngineAddress
from loragate.engine.fleet.fleet import Connect, Fleet
from loragate.engine.fleet.registry import RegistryFollower
from loragate.engine.link_security import LinkTls
from loragate.gateway.errors import Unavailable
from loragate.gateway.resilience.timeouts import cancel_and_wait
from loragate.gateway.text.base_model import BaseModel, read_base_model
from loragate.v1 import engine_pb2 as pb

log = logging.getLogger(__name__)


class EngineLink:
    """The fleet and its base model: each time an engine connects, the manifest is read and stored again.

    `changed` is called with True when requests can be served, and with False when they no longer can.
    """

    def __init__(
        self,
        engines: Sequence[EngineAddress],
        connect: Connect,
        store: Store,
        parsers: tuple[str | None, str | None],
        changed: Callable[[bool], None] = lambda ready: None,
        tls: LinkTls | None = None,
    ) -> None:
        """`engines` are used beside the registered ones. `parsers` are the configured ones of tool calls and of
        reasoning. `tls` has the certificates of the links."""
        self.fleet = Fleet(engines, connect, adopt=self._adopt, changed=lambda: changed(self.ready))
        self._follower = RegistryFollower(self.fleet, engines, store.engine_leases.all, tls)
        self._following: asyncio.Task[None] | None = None
        self._store = store
        self._parsers = parsers
        self._base: BaseModel | None = None
        self._stored: pb.Manifest | None = None

    @property
    def ready(self) -> bool:
        """Whether an engine responds, and requests are tokenized for the model that it serves."""
        return self.fleet.ready

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
            self._stored = stored
        await self.fleet.start()
        self._following = asyncio.create_task(self._follower.run(), name="engine-registry")

    async def connected(self, patience: float) -> None:
        """Wait until requests can be served, but at most `patience` seconds."""
        await self.fleet.connected(patience)

    async def close(self) -> None:
        """End the sessions with the engines."""
        if self._following is not None:
            await cancel_and_wait(self._following)
        await self.fleet.close()

    async def _adopt(self, manifest: pb.Manifest) -> bool:
        """Serve the base model of an engine that has connected. It must be stored, unless it is already."""
        known = self._stored == manifest
        try:
            await self._update(manifest)
            await self._store.publish_manifest(manifest)
            self._stored = manifest
        except (StoreError, ValueError) as error:
            log.warning("cannot read the engine's base model: %s", error)
            return known
        return True

    async def _update(self, manifest: pb.Manifest) -> None:
        if self.manifest != manifest:
            self._base = await asyncio.to_thread(read_base_model, manifest, *self._parsers)
