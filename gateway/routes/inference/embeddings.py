"""POST /v1/embeddings."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response

from loragate.gateway.dependencies.json_body import JsonBody
from loragate.gateway.dependencies.requirements import Inference
from loragate.gateway.dependencies.services import Use
from loragate.gateway.http.context import context_of
from loragate.gateway.http.disconnect import supervise
from loragate.gateway.http.plain_route import PlainRoute
from loragate.gateway.objects.inference.embeddings import EmbeddingList
from loragate.gateway.openapi.headers import GENERATED
from loragate.gateway.openapi.responses import describes
from loragate.gateway.operations import whole_responses as whole
from loragate.gateway.schemas.inference.embeddings import EmbeddingRequest

router = APIRouter(tags=["inference"], route_class=PlainRoute)


@router.post("/v1/embeddings")
@describes(EmbeddingList, errors=(404, 429), headers=GENERATED)
async def create_embeddings(
    caller: Inference,
    body: Annotated[EmbeddingRequest, Depends(JsonBody(EmbeddingRequest))],
    request: Request,
    use: Use,
) -> Response:
    """Compute one vector for each input."""
    pooling = await use.preparer.embeddings(caller, body)
    request_id = context_of(request.scope).request_id
    admission = use.admission.admit_pooling(caller, pooling, endpoint="embeddings", request_id=request_id)
    return await supervise(whole.embeddings(admission, pooling, body), request.receive, use.lifecycle)
