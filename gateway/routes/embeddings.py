"""POST /v1/embeddings."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response

from loragate.gateway.auth.requirements import Inference
from loragate.gateway.generation.preparing import prepare_embeddings
from loragate.gateway.http.bodies import JsonBody
from loragate.gateway.http.envelope import json_response
from loragate.gateway.http.openapi import documented
from loragate.gateway.http.supervise import supervise
from loragate.gateway.schemas.embeddings import EmbeddingRequest
from loragate.gateway.services import Use
from loragate.gateway.wire.embeddings import embedding_list

router = APIRouter(tags=["inference"])


@router.post("/v1/embeddings", openapi_extra=documented(EmbeddingRequest))
async def create_embeddings(
    caller: Inference,
    body: Annotated[EmbeddingRequest, Depends(JsonBody(EmbeddingRequest))],
    request: Request,
    use: Use,
) -> Response:
    """A vector for each input."""
    pooling = await prepare_embeddings(use, caller, body)
    answer = embedding_list(body, pooling, use.generation.embed(pooling))
    embeddings = await supervise(answer, request.receive, use.lifecycle)
    return json_response(embeddings, headers=pooling.target.headers)
