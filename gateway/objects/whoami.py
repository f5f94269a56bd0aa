"""The caller, as its key identifies it."""

from typing import Literal

from typing_extensions import TypedDict

from loragate.adapter_store.auth.principal import Principal, TenantPrincipal
from loragate.gateway.objects.admin import Scope


class OwnTenant(TypedDict):
    """The tenant that a key belongs to."""

    id: str
    name: str


class Caller(TypedDict):
    """The tenant and the scopes of a key. The operator has no tenant, no key id and no scopes."""

    object: Literal["caller"]
    role: Literal["operator", "tenant"]
    tenant: OwnTenant | None
    key_id: str | None
    scopes: list[Scope]


def caller_object(caller: Principal) -> Caller:
    """Return the caller."""
    if not isinstance(caller, TenantPrincipal):
        return {"object": "caller", "role": "operator", "tenant": None, "key_id": None, "scopes": []}
    return {
        "object": "caller",
        "role": "tenant",
        "tenant": {"id": caller.tenant_id, "name": caller.tenant_name},
        "key_id": caller.key_id,
        "scopes": sorted(scope.value for scope in caller.scopes),
    }
