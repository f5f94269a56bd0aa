"""Adapter bytes for the engine, out of the store."""

from loragate.adapter_store.store import Store
from loragate.engine.client.client import AdapterBytes


class StoreAdapterSource:
    """The engine's link asks this for the adapters that it does not hold (see `engine.client.AdapterSource`)."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def open(self, tenant_id: str, digest: str) -> AdapterBytes:
        stored = await self._store.open_adapter(tenant_id, digest)
        return AdapterBytes(stored.config_json, stored.tensors)
