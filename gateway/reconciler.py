"""Makes the engine hold what SQL says: told of changes, when the engine comes, and from time to time whatever happens.

Every gateway process does so on its own link; all of them read the same SQL, and saying a thing twice changes nothing.
"""

import asyncio
import logging
from collections.abc import Iterable

from loragate.adapter_store.desired_state import Content, Tier
from loragate.adapter_store.errors import StoreError
from loragate.adapter_store.store import Store
from loragate.engine.client import EngineClient, EngineUnavailable
from loragate.gateway.patience import happens
from loragate.v1 import engine_pb2 as pb

log = logging.getLogger(__name__)

_PERIOD_SECONDS = 60.0
_GAP_SECONDS = 0.5  # changes that come together are looked at together


class Reconciler:
    """One per process. It hears the store's change notices."""

    def __init__(self, store: Store, client: EngineClient, period: float = _PERIOD_SECONDS) -> None:
        self._store = store
        self._client = client
        self._period = period
        self._due = asyncio.Event()
        store.notices.subscribe(lambda tenant_id: self.due())

    def due(self) -> None:
        """Something may have changed, here or in the engine."""
        self._due.set()

    async def keep_reconciling(self) -> None:
        """Until cancelled."""
        while True:
            self._due.clear()
            try:
                await self.reconcile()
            except (StoreError, EngineUnavailable) as error:
                log.warning("the engine's adapters are not compared with the store's: %s", error)
            await asyncio.sleep(_GAP_SECONDS)
            await happens(self._due, self._period)

    async def reconcile(self) -> None:
        """Once. Raises StoreError and EngineUnavailable. The engine is asked first what it holds: what is published
        after that is not taken for something that is no more."""
        held = set[Content]()
        if self._client.ready:
            held = {_content(each.adapter) for each in (await self._client.inventory()).held}
        async with self._store.admin() as admin:
            kept = await admin.desired.kept()
            living = await admin.desired.living(held)
        self._client.pin(_references((each.tenant_id, each.digest) for each in kept if each.tier is Tier.DEVICE))
        self._client.prefetch(_references((each.tenant_id, each.digest) for each in kept))
        if held - living:
            self._client.retire(_references(sorted(held - living)))


def _references(contents: Iterable[Content]) -> list[pb.AdapterRef]:
    return [pb.AdapterRef(tenant_id=tenant_id, digest=digest) for tenant_id, digest in contents]


def _content(adapter: pb.AdapterRef) -> Content:
    return adapter.tenant_id, adapter.digest
