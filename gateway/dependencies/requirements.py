"""Requirements that a route's caller must meet, declared on the route itself.

Authorization does not depend on paths. Every route has a requirement, which a test checks.
"""

from typing import Annotated

from fastapi import Depends
from starlette.requests import Request

from loragate.adapter_store.audit.actor import Actor
from loragate.adapter_store.auth.principal import AdminPrincipal, Principal, Scope, TenantPrincipal
from loragate.gateway.auth.authenticator import require_scope
from loragate.gateway.dependencies.services import services_of
from loragate.gateway.errors import Forbidden, Unauthenticated
from loragate.gateway.http.context import RequestContext, context_of
from loragate.gateway.services import Services

_SDK_PREFIX = "tml-"  # without which the Tinker SDK does not start
_MAX_CREDENTIAL_LENGTH = 8192  # tokens of identity providers are long


class Requirement:
    """Base class of all requirements."""


class Public(Requirement):
    """No key is required."""

    async def __call__(self) -> None:
        return


class TenantWith(Requirement):
    """A tenant's key with one of these scopes is required."""

    def __init__(self, *scopes: Scope) -> None:
        self.scopes = scopes

    async def __call__(self, request: Request) -> TenantPrincipal:
        return await self.admit(services_of(request), _authorization(request), context_of(request.scope))

    async def admit(self, services: Services, authorization: str, context: RequestContext) -> TenantPrincipal:
        """Return the caller, who is recorded in `context`. Raise Unauthenticated and Forbidden."""
        principal = await _principal_of(services, authorization, context)
        if isinstance(principal, AdminPrincipal):
            raise Forbidden(
                "The admin key has no tenant: call this route with a tenant's key.", code="tenant_key_required"
            )
        require_scope(principal, *self.scopes)
        return principal


class Admin(Requirement):
    """The operator is required."""

    async def __call__(self, request: Request) -> AdminPrincipal:
        principal = await _principal(request)
        if not isinstance(principal, AdminPrincipal):
            raise Forbidden("This route needs the admin key; a tenant's key was given.", code="admin_key_required")
        return principal


class TenantAdmin(Requirement):
    """The operator, or a tenant's key with the scope `admin`, which gives access to that tenant only."""

    async def __call__(self, request: Request) -> Principal:
        principal = await _principal(request)
        if isinstance(principal, TenantPrincipal):
            require_scope(principal, Scope.ADMIN)
        return principal


class Holder(Requirement):
    """Any valid key is required."""

    async def __call__(self, request: Request) -> Principal:
        return await _principal(request)


class AdminOrAnybody(Requirement):
    """No key is required; the operator gets more. An invalid key is rejected."""

    async def __call__(self, request: Request) -> AdminPrincipal | None:
        if "authorization" not in request.headers:
            return None
        principal = await _principal(request)
        return principal if isinstance(principal, AdminPrincipal) else None


async def _principal(request: Request) -> Principal:
    return await _principal_of(services_of(request), _authorization(request), context_of(request.scope))


def _authorization(request: Request) -> str:
    """Return the caller's `Authorization`. A key in `x-api-key`, as Anthropic's clients send it, is the same."""
    given, key = request.headers.get("authorization", ""), request.headers.get("x-api-key")
    return given if given or key is None else f"Bearer {key.removeprefix(_SDK_PREFIX)}"


async def _principal_of(services: Services, authorization: str, context: RequestContext) -> Principal:
    principal = await _authenticated(services, authorization, context.peer)
    context.actor = Actor(principal.actor, context.request_id)
    if isinstance(principal, TenantPrincipal):
        context.tenant_id, context.key_id = principal.tenant_id, principal.key_id
    return principal


async def _authenticated(services: Services, authorization: str, address: str) -> Principal:
    scheme, _, key = authorization.partition(" ")
    key = key.strip()
    if scheme.lower() != "bearer" or not key:
        raise Unauthenticated(
            "Send your API key as 'Authorization: Bearer …', or over REST as 'x-api-key'.", code="missing_api_key"
        )
    if len(key) <= _MAX_CREDENTIAL_LENGTH and key.isprintable():
        principal = await services.authenticator.principal(key, address)
        if principal is not None:
            return principal
    raise Unauthenticated("This API key is not valid.")


async def count_change(request: Request) -> Actor:
    """Count a change of a tenant. Raise TooManyRequests."""
    context = context_of(request.scope)
    if context.tenant_id is not None:
        services_of(request).change_limiter.charge(context.tenant_id)
    return context.actor


public = Depends(Public())
Inference = Annotated[TenantPrincipal, Depends(TenantWith(Scope.INFERENCE))]
AdapterReader = Annotated[TenantPrincipal, Depends(TenantWith(Scope.ADAPTERS_READ))]
AdapterWriter = Annotated[TenantPrincipal, Depends(TenantWith(Scope.ADAPTERS_WRITE))]
FileKeeper = Annotated[TenantPrincipal, Depends(TenantWith(Scope.FINETUNE, Scope.ADAPTERS_WRITE, Scope.INFERENCE))]
FineTuner = Annotated[TenantPrincipal, Depends(TenantWith(Scope.FINETUNE))]
Trainer = Annotated[TenantPrincipal, Depends(TenantWith(Scope.TRAIN))]
Exporter = Annotated[TenantPrincipal, Depends(TenantWith(Scope.EXPORT))]
UsageReader = Annotated[TenantPrincipal, Depends(TenantWith(Scope.USAGE))]
TenantAdministrator = Annotated[TenantPrincipal, Depends(TenantWith(Scope.ADMIN))]
Operator = Annotated[AdminPrincipal, Depends(Admin())]
Administrator = Annotated[Principal, Depends(TenantAdmin())]
KeyHolder = Annotated[Principal, Depends(Holder())]
OperatorOrAnybody = Annotated[AdminPrincipal | None, Depends(AdminOrAnybody())]

By = Annotated[Actor, Depends(count_change)]
"""The actor of a change, for the audit log. It must follow the requirement, which determines it. A tenant's changes are
limited."""
