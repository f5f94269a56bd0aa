"""The endpoints whose requests a batch may have: each request is prepared and answered as by its route."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from loragate.adapter_store.auth.principal import TenantPrincipal
from loragate.gateway.calls.admission import CallAdmission
from loragate.gateway.errors import InvalidRequest
from loragate.gateway.generation.prepare import RequestPreparer
from loragate.gateway.objects.inference.completion_head import new_completion_head
from loragate.gateway.objects.inference.completions import echoes_of
from loragate.gateway.objects.inference.responses import ResponseHead
from loragate.gateway.operations import whole_responses as whole
from loragate.gateway.schemas.inference.chat import ChatRequest
from loragate.gateway.schemas.inference.classification import ClassifyRequest
from loragate.gateway.schemas.inference.completions import CompletionRequest
from loragate.gateway.schemas.inference.embeddings import EmbeddingRequest
from loragate.gateway.schemas.inference.response_chat import chat_request, renamed_fields
from loragate.gateway.schemas.inference.responses import ResponseRequest
from loragate.gateway.schemas.validation import validated


@dataclass(frozen=True, slots=True)
class LineRequest:
    """The request of one line."""

    preparer: RequestPreparer
    admission: CallAdmission
    caller: TenantPrincipal
    request_id: str
    body: Mapping[str, Any]


async def _chat(line: LineRequest) -> Response:
    body = _whole(validated(ChatRequest, line.body))
    generation = await line.preparer.chat(line.caller, body)
    admission = line.admission.admit(line.caller, generation, endpoint="chat", request_id=line.request_id)
    return await whole.chat(admission, new_completion_head("chatcmpl", body.model, generation))


async def _completion(line: LineRequest) -> Response:
    body = _whole(validated(CompletionRequest, line.body))
    generation = await line.preparer.completion(line.caller, body)
    admission = line.admission.admit(line.caller, generation, endpoint="completions", request_id=line.request_id)
    head = new_completion_head("cmpl", body.model, generation)
    return await whole.completion(admission, head, echoes_of(body, generation))


async def _response(line: LineRequest) -> Response:
    body = _stateless(_whole(validated(ResponseRequest, line.body)))
    with renamed_fields():
        generation = await line.preparer.chat(line.caller, chat_request(body))
    admission = line.admission.admit(line.caller, generation, endpoint="responses", request_id=line.request_id)
    return await whole.response(admission, ResponseHead(body, generation))


async def _embeddings(line: LineRequest) -> Response:
    body = validated(EmbeddingRequest, line.body)
    pooling = await line.preparer.embeddings(line.caller, body)
    admission = line.admission.admit_pooling(line.caller, pooling, endpoint="embeddings", request_id=line.request_id)
    return await whole.embeddings(admission, pooling, body)


async def _classify(line: LineRequest) -> Response:
    body = validated(ClassifyRequest, line.body)
    pooling = await line.preparer.classification(line.caller, body)
    admission = line.admission.admit_pooling(line.caller, pooling, endpoint="classify", request_id=line.request_id)
    return await whole.classification(admission, pooling, body)


ANSWERS: Mapping[str, Callable[[LineRequest], Awaitable[Response]]] = {
    "/v1/chat/completions": _chat,
    "/v1/completions": _completion,
    "/v1/responses": _response,
    "/v1/embeddings": _embeddings,
    "/v1/classify": _classify,
}
"""How a line is answered, by the endpoint of its batch. Each raises ApiError and StoreError."""


def _stateless(body: ResponseRequest) -> ResponseRequest:
    for name in ("store", "background", "previous_response_id", "conversation"):
        if getattr(body, name):
            words = f"Invalid '{name}': responses to lines of a batch are not stored; send the items as 'input'."
            raise InvalidRequest(words, param=name)
    return body


def _whole(body: Any) -> Any:
    if body.stream:
        raise InvalidRequest("Invalid 'stream': the lines of a batch are not streamed.", param="stream")
    return body
