"""POST /v1/messages and /v1/messages/count_tokens, Anthropic's API."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response

from loragate.gateway.calls.admission import TextAdmission
from loragate.gateway.dependencies.json_body import JsonBody
from loragate.gateway.dependencies.requirements import Inference
from loragate.gateway.dependencies.services import Use
from loragate.gateway.errors import ApiError
from loragate.gateway.http.context import context_of
from loragate.gateway.http.disconnect import supervise
from loragate.gateway.http.envelope import json_response
from loragate.gateway.http.event_stream import Events, EventStream
from loragate.gateway.http.message_errors import REQUEST_ID, message_error
from loragate.gateway.http.plain_route import PlainRoute
from loragate.gateway.objects.inference.message_events import MessageEvent, MessageEvents, whole_message
from loragate.gateway.objects.inference.messages import Message, MessageError, MessageHead, MessageTokens
from loragate.gateway.openapi.headers import GENERATED
from loragate.gateway.openapi.responses import describes
from loragate.gateway.schemas.inference.message_chat import chat_request, renamed_fields
from loragate.gateway.schemas.inference.messages import MessageRequest, MessageTokensRequest

router = APIRouter(tags=["inference"], route_class=PlainRoute)


@router.post("/v1/messages")
@describes(Message, events=MessageEvent, errors=(404, 429), headers=(*GENERATED, REQUEST_ID), error_shape=MessageError)
async def create_message(
    caller: Inference,
    body: Annotated[MessageRequest, Depends(JsonBody(MessageRequest))],
    request: Request,
    use: Use,
) -> Response:
    """Generate the assistant's next message, as in Anthropic's API. The response is a whole message or, with `stream`,
    server-sent events. The key may also be sent as `x-api-key`."""
    chat, request_id = chat_request(body), context_of(request.scope).request_id
    with renamed_fields():
        generation = await use.preparer.chat(caller, chat)
    admission = use.admission.admit(caller, generation, endpoint="messages", request_id=request_id)
    head = MessageHead(body.model, generation)
    if body.stream:
        return EventStream(_events(admission, head, request_id), use.lifecycle, use.config.stall_seconds)
    return await supervise(_whole(admission, head, request_id), request.receive, use.lifecycle)


@router.post("/v1/messages/count_tokens")
@describes(MessageTokens, errors=(404, 429), headers=(*GENERATED, REQUEST_ID), error_shape=MessageError)
async def count_message_tokens(
    caller: Inference,
    body: Annotated[MessageTokensRequest, Depends(JsonBody(MessageTokensRequest))],
    request: Request,
    use: Use,
) -> Response:
    """Return the number of tokens of the prompt of a message. They count as a request and its tokens within the limits,
    and not as usage."""
    chat = chat_request(body)
    with renamed_fields():
        tokens, headers = await use.preparer.chat_tokens(caller, chat)
    headers = headers | {REQUEST_ID: context_of(request.scope).request_id}
    return json_response({"input_tokens": len(tokens)}, headers=headers)


@asynccontextmanager
async def _events(admission: TextAdmission, head: MessageHead, request_id: str) -> AsyncIterator[Events]:
    def failure(error: ApiError) -> Mapping[str, Any]:
        return message_error(error.status, error.message, error.code, request_id)

    with renamed_fields():
        async with admission as call:
            events = MessageEvents(head).stream(call.stream())
            yield Events({**call.headers, REQUEST_ID: request_id}, events, failure, named=True)


async def _whole(admission: TextAdmission, head: MessageHead, request_id: str) -> Response:
    with renamed_fields():
        async with admission as call:
            (completion,) = await call.complete()
        return json_response(whole_message(head, completion), headers={**call.headers, REQUEST_ID: request_id})
