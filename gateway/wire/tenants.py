"""Tenants and their keys, as the operator sees them."""

from typing import Any

from loragate.adapter_store.auth.api_key import ApiKey, NewApiKey
from loragate.adapter_store.tenants.tenant import Tenant
from loragate.gateway.wire.common import limits_object, rfc3339


def tenant_object(tenant: Tenant) -> dict[str, Any]:
    """A tenant."""
    return {
        "id": tenant.id,
        "object": "tenant",
        "name": tenant.name,
        "weight": tenant.weight,
        "limits": limits_object(tenant.limits),
        "created_at": rfc3339(tenant.created_at),
        "updated_at": rfc3339(tenant.updated_at),
    }


def key_object(key: ApiKey) -> dict[str, Any]:
    """A key without its secret."""
    return {
        "id": key.id,
        "object": "api_key",
        "tenant_id": key.tenant_id,
        "name": key.name,
        "scopes": [scope.value for scope in key.scopes],
        "limits": limits_object(key.limits),
        "expires_at": rfc3339(key.expires_at),
        "revoked_at": rfc3339(key.revoked_at),
        "rotated_from": key.rotated_from,
        "last_used_at": rfc3339(key.last_used_at),
        "created_at": rfc3339(key.created_at),
    }


def new_key_object(new: NewApiKey) -> dict[str, Any]:
    """A key at the one moment when its secret is shown."""
    return {**key_object(new.key), "secret": new.secret}
