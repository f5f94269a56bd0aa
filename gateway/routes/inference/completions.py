"""POST /v1/completions."""

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
from loragate.gateway.objects.inference.completion_head import CompletionHead, new_completion_head
from loragate.gateway.objects.inference.completions import (
    Echoes,
    TextCompletion,
    echoes_of,
    text_chunks,
)
from loragate.gateway.openapi.headers import GENERATED
from loragate.gateway.openapi.responses import describes
from loragate.gateway.operations import whole_responses as whole
from loragate.gateway.schemas.inference.completions import CompletionRequest

router = APIRouter(tags=["inference"], route_class=PlainRoute)


@router.post("/v1/completions")
@describes(TextCompletion, events=TextCompletion, errors=(404, 429), headers=GENERATED)
async def create_completion(
    caller: Inference,
    body: Annotated[CompletionRequest, Depends(JsonBody(CompletionRequest))],
    request: Request,
    use: Use,
) -> Response:
    """Continue each prompt. The response is a whole completion or, with `stream`, server-sent events."""
    generation = await use.preparer.completion(caller, body)
    admission = use.admission.admit(
        caller, generation, endpoint="completions", request_id=context_of(request.scope).request_id
    )
    head = new_completion_head("cmpl", body.model, generation)
    echoes = echoes_of(body, generation)
    if body.stream:
        return EventStream(_chunks(admission, head, body, echoes), use.lifecycle, use.config.stall_seconds)
    return await supervise(whole.completion(admission, head, echoes), request.receive, use.lifecycle)


@asynccontextmanager
async def _chunks(
    admission: TextAdmission, head: CompletionHead, body: CompletionRequest, echoes: Echoes
) -> AsyncIterator[Events]:
    async with admission as call:
        chunks = text_chunks(
            head, call.stream(), echoes, include_usage=body.wants_usage_event, continuous_usage=body.continuous_usage
        )
        yield Events(call.headers, chunks)
