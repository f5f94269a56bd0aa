"""POST /v1/chat/completions."""

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
from loragate.gateway.objects.inference.chat import ChatCompletion, ChatCompletionChunk, chat_chunks
from loragate.gateway.objects.inference.completion_head import CompletionHead, new_completion_head
from loragate.gateway.openapi.headers import GENERATED
from loragate.gateway.openapi.responses import describes
from loragate.gateway.operations import whole_responses as whole
from loragate.gateway.schemas.inference.chat import ChatRequest

router = APIRouter(tags=["inference"], route_class=PlainRoute)


@router.post("/v1/chat/completions")
@describes(ChatCompletion, events=ChatCompletionChunk, errors=(404, 429), headers=GENERATED)
async def create_chat_completion(
    caller: Inference,
    body: Annotated[ChatRequest, Depends(JsonBody(ChatRequest))],
    request: Request,
    use: Use,
) -> Response:
    """Generate the assistant's next message. The response is a whole completion or, with `stream`, server-sent
    events."""
    generation = await use.preparer.chat(caller, body)
    admission = use.admission.admit(
        caller, generation, endpoint="chat", request_id=context_of(request.scope).request_id
    )
    head = new_completion_head("chatcmpl", body.model, generation)
    if body.stream:
        return EventStream(_chunks(admission, head, body), use.lifecycle, use.config.stall_seconds)
    return await supervise(whole.chat(admission, head), request.receive, use.lifecycle)


@asynccontextmanager
async def _chunks(admission: TextAdmission, head: CompletionHead, body: ChatRequest) -> AsyncIterator[Events]:
    async with admission as call:
        chunks = chat_chunks(
            head, call.stream(), include_usage=body.wants_usage_event, continuous_usage=body.continuous_usage
        )
        yield Events(call.headers, chunks)
