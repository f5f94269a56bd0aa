"""Scopes."""

from loragate.adapter_store.auth.principal import Scope, TenantPrincipal
from loragate.gateway.errors import Forbidden


def require_scope(principal: TenantPrincipal, *scopes: Scope) -> None:
    """One of them. Raises Forbidden."""
    if not any(principal.allows(scope) for scope in scopes):
        wanted = " or ".join(f"'{scope}'" for scope in scopes)
        raise Forbidden(f"This key lacks the scope {wanted}.")
