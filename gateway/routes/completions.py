"""POST /v1/completions."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response

from loragate.gateway.auth.requirements import Inference
from loragate.gateway.generation.preparing import prepare_completion
from loragate.gateway.generation.request import GenerationRequest
from loragate.gateway.http.bodies import JsonBody
from loragate.gateway.http.envelope import json_response
from loragate.gateway.http.event_stream import EventStream
from loragate.gateway.http.openapi import documented
from loragate.gateway.http.supervise import supervise
from loragate.gateway.schemas.completions import CompletionRequest
from loragate.gateway.services import Use
from loragate.gateway.wire.answer import new_answer
from loragate.gateway.wire.completions import text_chunks, text_completion

router = APIRouter(tags=["inference"])


@router.post("/v1/completions", openapi_extra=documented(CompletionRequest))
async def create_completion(
    caller: Inference,
    body: Annotated[CompletionRequest, Depends(JsonBody(CompletionRequest))],
    request: Request,
    use: Use,
) -> Response:
    """How each prompt goes on, whole or as server-sent events."""
    generation = await prepare_completion(use, caller, body)
    answer = new_answer("cmpl", body.model, generation)
    headers = generation.target.headers
    echoes = _echoes(body, generation)
    if body.stream:
        chunks = text_chunks(answer, use.generation.stream(generation), echoes, include_usage=body.wants_usage_event)
        return EventStream(chunks, use.lifecycle, use.config.stall_seconds, headers)
    completions = await supervise(use.generation.complete(generation), request.receive, use.lifecycle)
    return json_response(text_completion(answer, completions, echoes), headers=headers)


def _echoes(body: CompletionRequest, generation: GenerationRequest) -> list[str]:
    """What stands in front of each prompt's completions."""
    if not body.echo:
        return [""] * len(body.prompts)
    decode = generation.base.tokenizer.decode
    return [prompt if isinstance(prompt, str) else decode(prompt) for prompt in body.prompts]
