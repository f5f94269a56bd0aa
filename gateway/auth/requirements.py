"""What a route demands of its caller, declared on the route itself.

Paths play no part in authorisation: a route without a requirement does not exist (a test walks all of them).
"""

from typing import Annotated

from fastapi import Depends
from starlette.requests import Request

from loragate.adapter_store.principal import AdminPrincipal, Principal, Scope, TenantPrincipal
from loragate.gateway.http.context import context_of
from loragate.gateway.http.errors import Forbidden, Unauthenticated
from loragate.gateway.services import services_of

_LONGEST_KEY = 256


class Requirement:
    """Base of all requirements."""


class Public(Requirement):
    """Anybody may call."""

    async def __call__(self) -> None:
        return


class TenantWith(Requirement):
    """A tenant's key with one scope."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope

    async def __call__(self, request: Request) -> TenantPrincipal:
        principal = await _principal(request)
        if isinstance(principal, AdminPrincipal):
            raise Forbidden(
                "The admin key has no tenant: call this route with a tenant's key.", code="tenant_key_required"
            )
        context = context_of(request.scope)
        context.tenant_id, context.key_id = principal.tenant_id, principal.key_id
        if not principal.allows(self.scope):
            raise Forbidden(f"This key lacks the scope '{self.scope}'.")
        return principal


class Admin(Requirement):
    """The operator's key."""

    async def __call__(self, request: Request) -> AdminPrincipal:
        principal = await _principal(request)
        if not isinstance(principal, AdminPrincipal):
            raise Forbidden("This route needs the admin key; a tenant's key was given.", code="admin_key_required")
        return principal


class AdminOrAnybody(Requirement):
    """Anybody may call without a key; the operator is told more. A key that is none is refused all the same."""

    async def __call__(self, request: Request) -> AdminPrincipal | None:
        if "authorization" not in request.headers:
            return None
        principal = await _principal(request)
        return principal if isinstance(principal, AdminPrincipal) else None


async def _principal(request: Request) -> Principal:
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    key = key.strip()
    if scheme.lower() != "bearer" or not key:
        raise Unauthenticated("Send your API key as 'Authorization: Bearer …'.", code="missing_api_key")
    if len(key) <= _LONGEST_KEY:
        principal = await services_of(request).authenticator.principal(key)
        if principal is not None:
            return principal
    raise Unauthenticated("This API key is not valid.")


public = Depends(Public())
Inference = Annotated[TenantPrincipal, Depends(TenantWith(Scope.INFERENCE))]
AdapterReader = Annotated[TenantPrincipal, Depends(TenantWith(Scope.ADAPTERS_READ))]
AdapterWriter = Annotated[TenantPrincipal, Depends(TenantWith(Scope.ADAPTERS_WRITE))]
Operator = Annotated[AdminPrincipal, Depends(Admin())]
OperatorOrAnybody = Annotated[AdminPrincipal | None, Depends(AdminOrAnybody())]
