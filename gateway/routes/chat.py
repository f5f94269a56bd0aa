"""POST /v1/chat/completions."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response

from loragate.gateway.auth.requirements import Inference
from loragate.gateway.generation.preparing import prepare_chat
from loragate.gateway.http.bodies import JsonBody
from loragate.gateway.http.envelope import json_response
from loragate.gateway.http.event_stream import EventStream
from loragate.gateway.http.openapi import documented
from loragate.gateway.http.supervise import supervise
from loragate.gateway.schemas.chat import ChatRequest
from loragate.gateway.services import Use
from loragate.gateway.wire.answer import new_answer
from loragate.gateway.wire.chat import chat_chunks, chat_completion

router = APIRouter(tags=["inference"])


@router.post("/v1/chat/completions", openapi_extra=documented(ChatRequest))
async def create_chat_completion(
    caller: Inference,
    body: Annotated[ChatRequest, Depends(JsonBody(ChatRequest))],
    request: Request,
    use: Use,
) -> Response:
    """The assistant's next message, whole or as server-sent events."""
    generation = await prepare_chat(use, caller, body)
    answer = new_answer("chatcmpl", body.model, generation)
    headers = generation.target.headers
    if body.stream:
        chunks = chat_chunks(answer, use.generation.stream(generation), include_usage=body.wants_usage_event)
        return EventStream(chunks, use.lifecycle, use.config.stall_seconds, headers)
    completions = await supervise(use.generation.complete(generation), request.receive, use.lifecycle)
    return json_response(chat_completion(answer, completions), headers=headers)
