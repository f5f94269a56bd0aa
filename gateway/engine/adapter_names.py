"""Names of adapters and tenants for the operator. Without the database there are none, but the metrics, which are
needed most then, remain available."""

import logging
from collections.abc import Collection, Iterable

from loragate.adapter_store.errors import StoreError
from loragate.adapter_store.publishing.all_published import Content, VersionName
from loragate.adapter_store.store import Store
from loragate.v1 import engine_pb2 as pb

log = logging.getLogger(__name__)

Names = dict[Content, tuple[VersionName, ...]]


async def names_of(store: Store, adapters: Iterable[pb.AdapterRef]) -> Names:
    """Return the names of these adapters. While the database is unavailable, return none."""
    try:
        async with store.admin() as admin:
            return await admin.published.names(content_of(adapter) for adapter in adapters)
    except StoreError as error:
        log.warning("the names of adapters are missing: %s", error)
        return {}


async def tenant_names_of(store: Store, tenant_ids: Collection[str]) -> dict[str, str]:
    """Return the tenants' names by id. While the database is unavailable, return none."""
    try:
        async with store.admin() as admin:
            return await admin.tenants.names(tenant_ids) if tenant_ids else {}
    except StoreError as error:
        log.warning("the names of tenants are missing: %s", error)
        return {}


def content_of(adapter: pb.AdapterRef) -> Content:
    """Return the adapter's key in the store."""
    return adapter.tenant_id, adapter.digest
