"""/v1/responses/{response_id}: stored responses, as in OpenAI's API; and a list of them without their
content."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response

from loragate.adapter_store.auth.principal import TenantPrincipal
from loragate.adapter_store.database.page import DEFAULT_LIMIT, MAX_LIMIT
from loragate.gateway.dependencies.requirements import By, Inference
from loragate.gateway.dependencies.services import Use
from loragate.gateway.errors import InvalidRequest
from loragate.gateway.http.envelope import json_response
from loragate.gateway.http.event_stream import Events, EventStream
from loragate.gateway.objects.inference.response_item import ResponseEvent
from loragate.gateway.objects.inference.responses import ResponseObject
from loragate.gateway.objects.inference.stored_responses import (
    ItemList,
    ResponseDeleted,
    ResponseSummaryList,
)
from loragate.gateway.openapi.responses import describes
from loragate.gateway.operations import stored_responses as actions
from loragate.gateway.services import Services

router = APIRouter(prefix="/v1/responses", tags=["responses"])

Limit = Annotated[int, Query(ge=1, le=MAX_LIMIT)]
After = Annotated[str | None, Query(max_length=256)]
Include = Annotated[list[str] | None, Query(max_length=16, description="Accepted, without effect.")]


@router.get("")
@describes(ResponseSummaryList)
async def list_responses(caller: Inference, use: Use, after: After = None, limit: Limit = DEFAULT_LIMIT) -> Response:
    """List stored responses without their content, newest first."""
    return json_response(await actions.list_responses(use, caller, after, limit))


@router.get("/{response_id}")
@describes(ResponseObject, events=ResponseEvent)
async def get_response(
    response_id: str,
    caller: Inference,
    use: Use,
    stream: bool = False,
    starting_after: Annotated[int | None, Query(ge=0, lt=1 << 31)] = None,
    include: Include = None,
    include_obfuscation: bool | None = None,
) -> Response:
    """Get a stored response. With `stream`, get its events behind the one with number `starting_after`; the response
    must have been created with `background` and `stream`."""
    stored = await actions.get(use, caller, response_id)
    if not stream:
        return json_response(dict(stored.document))
    if not stored.streamed:
        raise InvalidRequest(
            "Invalid 'stream': the response was not created with background=true and stream=true.", param="stream"
        )
    return followed(use, caller, response_id, -1 if starting_after is None else starting_after)


@router.delete("/{response_id}")
@describes(ResponseDeleted)
async def delete_response(response_id: str, caller: Inference, by: By, use: Use) -> Response:
    """Delete a stored response, its events, and the items that it added to a conversation. One that runs is stopped."""
    await actions.delete(use, caller, by, response_id)
    deleted: ResponseDeleted = {"id": response_id, "object": "response", "deleted": True}
    return json_response(deleted)


@router.post("/{response_id}/cancel")
@describes(ResponseObject)
async def cancel_response(response_id: str, caller: Inference, by: By, use: Use) -> Response:
    """Cancel a response that was created with `background`. One that has ended stays as it is."""
    return json_response(dict((await actions.cancel(use, caller, by, response_id)).document))


@router.get("/{response_id}/input_items")
@describes(ItemList)
async def list_input_items(
    response_id: str,
    caller: Inference,
    use: Use,
    after: After = None,
    limit: Limit = DEFAULT_LIMIT,
    order: Literal["asc", "desc"] = "desc",
    include: Include = None,
) -> Response:
    """List the items that a response was generated from, those of the responses that it continues included: the last
    one first unless `order` is `asc`."""
    page = await actions.input_items(use, caller, response_id, after, limit, ascending=order == "asc")
    return json_response(page)


def followed(use: Services, caller: TenantPrincipal, response_id: str, after: int) -> EventStream:
    """Return the stream of the events of a response that runs in the background, or has ended."""

    @asynccontextmanager
    async def source() -> AsyncIterator[Events]:
        yield Events({}, actions.events(use, caller.tenant_id, response_id, after), named=True)

    return EventStream(source(), use.lifecycle, use.config.stall_seconds)
