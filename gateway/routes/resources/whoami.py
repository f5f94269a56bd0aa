"""GET /v1/whoami."""

from typing import Any

from fastapi import APIRouter, Response

from loragate.adapter_store.auth.principal import Principal, TenantPrincipal
from loragate.gateway.dependencies.requirements import KeyHolder
from loragate.gateway.http.envelope import json_response
from loragate.gateway.objects.whoami import Caller
from loragate.gateway.openapi.responses import answers

router = APIRouter(tags=["keys"])


@router.get("/v1/whoami")
@answers(Caller)
async def whoami(caller: KeyHolder) -> Response:
    """Whose key this is, and what it opens."""
    return json_response(_caller_object(caller))


def _caller_object(caller: Principal) -> dict[str, Any]:
    if not isinstance(caller, TenantPrincipal):
        return {"object": "caller", "role": "operator", "tenant": None, "key_id": None, "scopes": []}
    return {
        "object": "caller",
        "role": "tenant",
        "tenant": {"id": caller.tenant_id, "name": caller.tenant_name},
        "key_id": caller.key_id,
        "scopes": sorted(scope.value for scope in caller.scopes),
    }
