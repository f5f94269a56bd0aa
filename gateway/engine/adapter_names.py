"""What adapters and tenants are called, where the operator asks: nothing while the database is away, for then the
numbers are wanted most."""

import logging
from collections.abc import Collection, Iterable

from loragate.adapter_store.errors import StoreError
from loragate.adapter_store.publishing.all_published import Content, VersionName
from loragate.adapter_store.store import Store
from loragate.v1 import engine_pb2 as pb

log = logging.getLogger(__name__)

Names = dict[Content, tuple[VersionName, ...]]


async def names_of(store: Store, adapters: Iterable[pb.AdapterRef]) -> Names:
    """Of those that have one."""
    try:
        async with store.admin() as admin:
            return await admin.published.names(content_of(adapter) for adapter in adapters)
    except StoreError as error:
        log.warning("adapters are told without their names: %s", error)
        return {}


async def tenant_names_of(store: Store, tenant_ids: Collection[str]) -> dict[str, str]:
    """By id."""
    try:
        async with store.admin() as admin:
            return await admin.tenants.names(tenant_ids) if tenant_ids else {}
    except StoreError as error:
        log.warning("tenants are told without their names: %s", error)
        return {}


def content_of(adapter: pb.AdapterRef) -> Content:
    """As the store knows it."""
    return adapter.tenant_id, adapter.digest
