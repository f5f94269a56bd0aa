"""What a transaction may touch: one tenant's things, or the operator's."""

from dataclasses import dataclass

from loragate.adapter_store.adapters import AdapterRepository
from loragate.adapter_store.api_keys import ApiKeyRepository
from loragate.adapter_store.published import PublishedAdapters
from loragate.adapter_store.tenants import TenantRepository


@dataclass(frozen=True)
class TenantScope:
    """Repositories bound to one tenant; none of their methods takes a tenant's id."""

    adapters: AdapterRepository


@dataclass(frozen=True)
class AdminScope:
    """The operator's repositories."""

    tenants: TenantRepository
    keys: ApiKeyRepository
    published: PublishedAdapters
