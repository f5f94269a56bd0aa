"""Responses that are sent as a whole: to a request without streaming, and into the output of a batch."""

from starlette.responses import Response

from loragate.gateway.calls.admission import PoolingAdmission, TextAdmission
from loragate.gateway.generation.request import PoolingRequest
from loragate.gateway.http.envelope import json_response
from loragate.gateway.objects.inference.chat import chat_completion
from loragate.gateway.objects.inference.classification import classifications
from loragate.gateway.objects.inference.completion_head import CompletionHead, written
from loragate.gateway.objects.inference.completions import Echoes, text_completion
from loragate.gateway.objects.inference.embeddings import embedding_list
from loragate.gateway.objects.inference.ranking import ranking, scores
from loragate.gateway.objects.inference.response_events import whole_response
from loragate.gateway.objects.inference.responses import ResponseHead
from loragate.gateway.schemas.inference.classification import ClassifyRequest, RerankRequest, ScoreRequest
from loragate.gateway.schemas.inference.embeddings import EmbeddingRequest
from loragate.gateway.schemas.inference.response_chat import renamed_fields


async def chat(admission: TextAdmission, head: CompletionHead) -> Response:
    """Return a chat completion."""
    async with admission as call:
        completions = await call.complete()
        return await written(
            head.request, lambda: json_response(chat_completion(head, completions), headers=call.headers)
        )


async def completion(admission: TextAdmission, head: CompletionHead, echoes: Echoes) -> Response:
    """Return a text completion."""
    async with admission as call:
        completions = await call.complete()
        return await written(
            head.request, lambda: json_response(text_completion(head, completions, echoes), headers=call.headers)
        )


async def response(admission: TextAdmission, head: ResponseHead) -> Response:
    """Return the next items of a conversation."""
    with renamed_fields():
        async with admission as call:
            (completion,) = await call.complete()
        return json_response(whole_response(head, completion), headers=call.headers)


async def embeddings(admission: PoolingAdmission, pooling: PoolingRequest, body: EmbeddingRequest) -> Response:
    """Return the embeddings of all inputs."""
    async with admission as call:
        return json_response(await embedding_list(body, pooling, call.pool()), headers=call.headers)


async def classification(admission: PoolingAdmission, pooling: PoolingRequest, body: ClassifyRequest) -> Response:
    """Return the labels of all inputs."""
    async with admission as call:
        return json_response(await classifications(body, pooling, call.pool()), headers=call.headers)


async def scoring(admission: PoolingAdmission, pooling: PoolingRequest, body: ScoreRequest) -> Response:
    """Return the scores of all pairs."""
    async with admission as call:
        return json_response(await scores(body, pooling, call.pool()), headers=call.headers)


async def reranking(
    admission: PoolingAdmission, pooling: PoolingRequest, body: RerankRequest, *, with_documents: bool
) -> Response:
    """Return the documents, the best first."""
    async with admission as call:
        ranked = await ranking(body, pooling, call.pool(), with_documents=with_documents)
        return json_response(ranked, headers=call.headers)
