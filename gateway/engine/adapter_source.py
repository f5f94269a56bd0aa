"""Adapter bytes for the engine, read from the store."""

from loragate.adapter_store.store import Store
from loragate.engine.client.session import AdapterBytes


class StoreAdapterSource:
    """Provides the adapters that the engine does not hold (see `engine.client.session.AdapterSource`)."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def open(self, tenant_id: str, digest: str) -> AdapterBytes:
        stored = await self._store.open_adapter(tenant_id, digest)
        return AdapterBytes(stored.config_json, stored.tensors)
