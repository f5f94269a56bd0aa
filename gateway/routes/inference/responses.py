"""POST /v1/responses."""

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
from loragate.gateway.http.event_stream import Events, EventStream
from loragate.gateway.http.plain_route import PlainRoute
from loragate.gateway.objects.inference.response_events import ResponseEvents
from loragate.gateway.objects.inference.response_item import ResponseEvent
from loragate.gateway.objects.inference.responses import ResponseHead, ResponseObject
from loragate.gateway.openapi.headers import GENERATED
from loragate.gateway.openapi.responses import describes
from loragate.gateway.operations import whole_responses as whole
from loragate.gateway.schemas.inference.response_chat import chat_request, renamed_fields
from loragate.gateway.schemas.inference.responses import ResponseRequest

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
    It is not stored."""
    chat = chat_request(body)
    with renamed_fields():
        generation = await use.preparer.chat(caller, chat)
    admission = use.admission.admit(
        caller, generation, endpoint="responses", request_id=context_of(request.scope).request_id
    )
    head = ResponseHead(body, generation)
    if body.stream:
        return EventStream(_events(admission, head), use.lifecycle, use.config.stall_seconds)
    return await supervise(whole.response(admission, head), request.receive, use.lifecycle)


@asynccontextmanager
async def _events(admission: TextAdmission, head: ResponseHead) -> AsyncIterator[Events]:
    with renamed_fields():
        async with admission as call:
            events = ResponseEvents(head)
            yield Events(call.headers, events.stream(call.stream()), events.failure, named=True)
