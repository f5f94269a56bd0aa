"""POST /v1/classify, /v1/score and /v1/rerank."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response

from loragate.gateway.dependencies.json_body import JsonBody
from loragate.gateway.dependencies.requirements import Inference
from loragate.gateway.dependencies.services import Use
from loragate.gateway.http.context import context_of
from loragate.gateway.http.disconnect import supervise
from loragate.gateway.http.plain_route import PlainRoute
from loragate.gateway.objects.inference.classification import Classifications
from loragate.gateway.objects.inference.ranking import Ranking, Scores
from loragate.gateway.openapi.headers import GENERATED
from loragate.gateway.openapi.responses import describes
from loragate.gateway.operations import whole_responses as whole
from loragate.gateway.schemas.inference.classification import ClassifyRequest, RerankRequest, ScoreRequest
from loragate.gateway.services import Services

router = APIRouter(tags=["inference"], route_class=PlainRoute)

RerankBody = Annotated[RerankRequest, Depends(JsonBody(RerankRequest))]


@router.post("/v1/classify")
@describes(Classifications, errors=(404, 429), headers=GENERATED)
async def classify(
    caller: Inference,
    body: Annotated[ClassifyRequest, Depends(JsonBody(ClassifyRequest))],
    request: Request,
    use: Use,
) -> Response:
    """Return the labels of each input or, with a TOKEN_CLS adapter, of each of its tokens."""
    pooling = await use.preparer.classification(caller, body)
    request_id = context_of(request.scope).request_id
    admission = use.admission.admit_pooling(caller, pooling, endpoint="classify", request_id=request_id)
    return await supervise(whole.classification(admission, pooling, body), request.receive, use.lifecycle)


@router.post("/v1/score")
@describes(Scores, errors=(404, 429), headers=GENERATED)
async def score(
    caller: Inference, body: Annotated[ScoreRequest, Depends(JsonBody(ScoreRequest))], request: Request, use: Use
) -> Response:
    """Return one number for each pair of texts, by an adapter with one label."""
    pooling = await use.preparer.pairs(caller, body)
    request_id = context_of(request.scope).request_id
    admission = use.admission.admit_pooling(caller, pooling, endpoint="score", request_id=request_id)
    return await supervise(whole.scoring(admission, pooling, body), request.receive, use.lifecycle)


@router.post("/v1/rerank")
@describes(Ranking, errors=(404, 429), headers=GENERATED)
async def rerank(caller: Inference, body: RerankBody, request: Request, use: Use) -> Response:
    """Return documents in the order of their scores for a query, by an adapter with one label."""
    return await _rerank(caller, body, request, use, with_documents=True)


@router.post("/v2/rerank")
@describes(Ranking, errors=(404, 429), headers=GENERATED)
async def rerank_v2(caller: Inference, body: RerankBody, request: Request, use: Use) -> Response:
    """Return documents as /v1/rerank does, without their texts: Cohere's clients call this path."""
    return await _rerank(caller, body, request, use, with_documents=False)


async def _rerank(
    caller: Inference, body: RerankRequest, request: Request, use: Services, *, with_documents: bool
) -> Response:
    pooling = await use.preparer.pairs(caller, body)
    request_id = context_of(request.scope).request_id
    admission = use.admission.admit_pooling(caller, pooling, endpoint="rerank", request_id=request_id)
    ranked = whole.reranking(admission, pooling, body, with_documents=with_documents)
    return await supervise(ranked, request.receive, use.lifecycle)
