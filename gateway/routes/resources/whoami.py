"""GET /v1/whoami."""

from fastapi import APIRouter, Response

from loragate.gateway.dependencies.requirements import KeyHolder
from loragate.gateway.dependencies.services import Use
from loragate.gateway.http.envelope import json_response
from loragate.gateway.objects.keys import Caller, caller_object
from loragate.gateway.openapi.responses import describes

router = APIRouter(tags=["keys"])


@router.get("/v1/whoami")
@describes(Caller)
async def whoami(caller: KeyHolder, use: Use) -> Response:
    """Get the tenant and the scopes of the key that is used."""
    return json_response(caller_object(caller, exports=use.config.merged_exports))
