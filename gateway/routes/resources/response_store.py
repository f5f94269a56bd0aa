"""/v1/response_store: all that a tenant stores of responses and conversations."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response
from starlette.responses import StreamingResponse

from loragate.gateway.dependencies.json_body import JsonBody
from loragate.gateway.dependencies.requirements import By, Inference, TenantAdministrator
from loragate.gateway.dependencies.services import Use
from loragate.gateway.errors import InvalidRequest
from loragate.gateway.http.envelope import json_response
from loragate.gateway.http.prefetch_first import prefetch_first
from loragate.gateway.objects.inference.stored_responses import DeletedOfUser, ResponseStore
from loragate.gateway.openapi.responses import describes
from loragate.gateway.operations import stored_responses as actions
from loragate.gateway.schemas.inference.conversations import ResponseStorePatch

router = APIRouter(prefix="/v1/response_store", tags=["responses"])

Name = Annotated[str | None, Query(min_length=1, max_length=512)]


@router.get("")
@describes(ResponseStore)
async def get_response_store(caller: Inference, use: Use) -> Response:
    """Get how much is stored, and whether responses are stored by default."""
    return json_response(await actions.store_of(use, caller))


@router.patch("")
@describes(ResponseStore)
async def update_response_store(
    caller: TenantAdministrator,
    by: By,
    body: Annotated[ResponseStorePatch, Depends(JsonBody(ResponseStorePatch))],
    use: Use,
) -> Response:
    """Set whether responses are stored of requests without `store`. It takes effect within seconds."""
    return json_response(await actions.set_default(use, caller, by, store_by_default=body.store_by_default))


@router.delete("")
@describes(DeletedOfUser)
async def delete_responses_of_user(
    caller: Inference, by: By, use: Use, user: Name = None, safety_identifier: Name = None
) -> Response:
    """Delete the responses of one `user` or one `safety_identifier`, and the items that these added to
    conversations."""
    if (user is None) == (safety_identifier is None):
        raise InvalidRequest("Send one of 'user' and 'safety_identifier'.", param="user")
    if user is not None:
        count = await actions.delete_of_user(use, caller, by, "user", user)
    else:
        assert safety_identifier is not None
        count = await actions.delete_of_user(use, caller, by, "safety_identifier", safety_identifier)
    deleted: DeletedOfUser = {"object": "response_store.deleted", "deleted": count}
    return json_response(deleted)


@router.get("/export")
@describes(None, json=False, media={"application/jsonl": "A line for each response, then one for each conversation."})
async def export_responses(caller: Inference, use: Use) -> Response:
    """Download all stored responses, with their requests, and all conversations as lines of JSON."""
    return StreamingResponse(await prefetch_first(actions.export(use, caller)), media_type="application/jsonl")
