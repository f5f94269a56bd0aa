"""POST /v1/responses and /v1/responses/input_tokens."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response

from loragate.gateway.calls.admission import TextAdmission
from loragate.gateway.dependencies.json_body import JsonBody
from loragate.gateway.dependencies.requirements import Inference
from loragate.gateway.dependencies.services import Use
from loragate.gateway.http.context import context_of
from loragate.gateway.http.disconnect import supervise
from loragate.gateway.http.envelope import json_response
from loragate.gateway.http.event_stream import Events, EventStream
from loragate.gateway.http.plain_route import PlainRoute
from loragate.gateway.objects.inference.response_events import ResponseEvents, whole_response
from loragate.gateway.objects.inference.response_item import ResponseEvent
from loragate.gateway.objects.inference.responses import ResponseObject
from loragate.gateway.objects.inference.stored_responses import InputTokens
from loragate.gateway.openapi.headers import GENERATED
from loragate.gateway.openapi.responses import describes
from loragate.gateway.operations.responses import (
    PreparedResponse,
    enqueue,
    is_stored,
    keep,
    kept_events,
    prepare,
    whole_request,
)
from loragate.gateway.routes.inference.stored_responses import followed
from loragate.gateway.schemas.inference.response_chat import chat_request, renamed_fields
from loragate.gateway.schemas.inference.responses import ResponseRequest
from loragate.gateway.services import Services

router = APIRouter(tags=["inference"], route_class=PlainRoute)


@router.post("/v1/responses")
@describes(ResponseObject, events=ResponseEvent, errors=(404, 429), headers=GENERATED)
async def create_response(
    caller: Inference,
    body: Annotated[ResponseRequest, Depends(JsonBody(ResponseRequest))],
    request: Request,
    use: Use,
) -> Response:
    """Generate the next items of a conversation. The response is a whole object or, with `stream`, server-sent events.
    With `background`, it is generated after the request has ended. It is stored only with `store`, or where the tenant
    has set so."""
    prepared = await prepare(use, caller, body)
    if body.background:
        document = await enqueue(use, prepared)
        return followed(use, caller, document["id"], -1) if body.stream else json_response(document)
    admission = use.admission.admit(
        caller, prepared.head.request, endpoint="responses", request_id=context_of(request.scope).request_id
    )
    if body.stream:
        return EventStream(_events(use, admission, prepared), use.lifecycle, use.config.stall_seconds)
    return await supervise(_whole(use, admission, prepared), request.receive, use.lifecycle)


async def _whole(use: Services, admission: TextAdmission, prepared: PreparedResponse) -> Response:
    with renamed_fields():
        async with admission as call:
            (completion,) = await call.complete()
        document = whole_response(prepared.head, completion)
        await keep(use, prepared, document)
        return json_response(document, headers=call.headers)


@asynccontextmanager
async def _events(use: Services, admission: TextAdmission, prepared: PreparedResponse) -> AsyncIterator[Events]:
    with renamed_fields():
        async with admission as call:
            events = ResponseEvents(prepared.head)
            stream = kept_events(use, prepared, events.stream(call.stream()))
            yield Events(call.headers, stream, events.failure, named=True)


@router.post("/v1/responses/input_tokens")
@describes(InputTokens, errors=(404, 429), headers=GENERATED)
async def count_input_tokens(
    caller: Inference, body: Annotated[ResponseRequest, Depends(JsonBody(ResponseRequest))], use: Use
) -> Response:
    """Return the number of tokens of a request's input, with the items that it continues. They count as a request and
    its tokens within the limits, and not as usage."""
    is_stored(use.config.responses, caller, body)
    chat = chat_request(await whole_request(use, caller, body))
    with renamed_fields():
        tokens, headers = await use.preparer.chat_tokens(caller, chat)
    count: InputTokens = {"object": "response.input_tokens", "input_tokens": len(tokens)}
    return json_response(count, headers=headers)
