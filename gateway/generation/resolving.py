"""From the `model` of a request to the weights that answer it."""

from loragate.adapter_store.errors import NotFound
from loragate.adapter_store.principal import TenantPrincipal
from loragate.adapter_store.store import Store
from loragate.gateway.generation.target import Target
from loragate.gateway.model_names import model_not_found, parse_adapter_name
from loragate.gateway.text.base_model import BaseModel


async def resolve(store: Store, caller: TenantPrincipal, base: BaseModel, model: str) -> Target:
    """Raises ApiError for what the caller cannot use, and StoreError."""
    if model == base.id:
        return Target(caller.tenant_id, adapter=None)
    name = parse_adapter_name(model)
    try:
        async with store.tenant(caller.tenant_id) as scope:
            adapter = await scope.adapters.resolve(name.adapter, version=name.version, alias=name.alias)
    except NotFound:
        raise model_not_found(model) from None
    return Target(caller.tenant_id, adapter)
