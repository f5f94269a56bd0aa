"""loragate.v1.InferenceService: labels, scores and rankings by adapters with a head for labels."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

from loragate.gateway.calls.call import PoolingCall
from loragate.gateway.calls.inference_request import PoolingEndpoint
from loragate.gateway.generation.request import PoolingRequest
from loragate.gateway.grpc.call import Call
from loragate.gateway.grpc.requests import classify_request, message_body
from loragate.gateway.objects.inference.classification import classifications
from loragate.gateway.objects.inference.ranking import ranking, scores
from loragate.gateway.schemas.inference.classification import RerankRequest, ScoreRequest
from loragate.v1 import inference_pb2 as pb


async def classify(call: Call) -> AsyncGenerator[pb.ClassifyResponse, None]:
    """Return the labels of each input, or of each of its tokens."""
    body = await call.request(classify_request)
    pooling = await call.services.preparer.classification(call.tenant, body)
    async with _admitted(call, pooling, "classify") as admitted:
        response = await classifications(body, pooling, admitted.pool())
    yield pb.ClassifyResponse(**response)


async def score(call: Call) -> AsyncGenerator[pb.ScoreResponse, None]:
    """Return one number for each pair of texts."""
    body = await call.request(message_body(pb.ScoreRequest, ScoreRequest))
    pooling = await call.services.preparer.pairs(call.tenant, body)
    async with _admitted(call, pooling, "score") as admitted:
        response = await scores(body, pooling, admitted.pool())
    yield pb.ScoreResponse(**response)


async def rerank(call: Call) -> AsyncGenerator[pb.RerankResponse, None]:
    """Return documents in the order of their scores for a query."""
    body = await call.request(message_body(pb.RerankRequest, RerankRequest))
    pooling = await call.services.preparer.pairs(call.tenant, body)
    async with _admitted(call, pooling, "rerank") as admitted:
        response = await ranking(body, pooling, admitted.pool(), with_documents=True)
    yield pb.RerankResponse(**response)


@asynccontextmanager
async def _admitted(call: Call, pooling: PoolingRequest, endpoint: PoolingEndpoint) -> AsyncIterator[PoolingCall]:
    """Admit the request within the caller's limits; what is left of them is sent with the response."""
    admission = call.services.admission.admit_pooling(
        call.tenant, pooling, endpoint=endpoint, request_id=call.request_id
    )
    async with admission as admitted:
        call.headers |= admitted.headers
        yield admitted
