"""Scores of pairs of texts, in vLLM's shape, and ranked documents, in the one that vLLM, Jina and Cohere share."""

import secrets
import time
from collections.abc import AsyncGenerator
from typing import Literal, NotRequired

import numpy as np
from typing_extensions import TypedDict

from loragate.gateway.generation.request import Pooled, PoolingRequest
from loragate.gateway.objects.common import Count
from loragate.gateway.objects.inference.classification import InputUsage, activated, in_order, usage_of
from loragate.gateway.objects.inference.completion_head import UnixTime
from loragate.gateway.schemas.inference.classification import PairRequest, RerankRequest, ScoreRequest


class Score(TypedDict):
    """The score of pair number `index`."""

    object: Literal["score"]
    index: Count
    score: float


class Scores(TypedDict):
    """The scores of all pairs, in their order."""

    id: str
    object: Literal["list"]
    created: UnixTime
    model: str
    data: list[Score]
    usage: InputUsage


class RankedText(TypedDict):
    """A document's text."""

    text: str


class RankedDocument(TypedDict):
    """Document number `index` of the request."""

    index: Count
    relevance_score: float
    document: NotRequired[RankedText]


class Ranking(TypedDict):
    """Documents, those with the highest scores first."""

    id: str
    object: Literal["list"]
    model: str
    results: list[RankedDocument]
    usage: InputUsage


async def scores(body: ScoreRequest, request: PoolingRequest, vectors: AsyncGenerator[Pooled, None]) -> Scores:
    """Return the whole response."""
    found = await _scores_of(body, request, vectors)
    return {
        "id": f"score-{secrets.token_hex(12)}",
        "object": "list",
        "created": int(time.time()),
        "model": body.model,
        "data": [{"object": "score", "index": index, "score": score} for index, score in enumerate(found)],
        "usage": usage_of(request),
    }


async def ranking(
    body: RerankRequest, request: PoolingRequest, vectors: AsyncGenerator[Pooled, None], *, with_documents: bool
) -> Ranking:
    """Return the whole response. Documents with equal scores keep their order."""
    found, texts = await _scores_of(body, request, vectors), body.texts
    best = sorted(range(len(found)), key=lambda index: -found[index])[: body.top_n]
    shown = with_documents if body.return_documents is None else body.return_documents
    return {
        "id": f"rerank-{secrets.token_hex(12)}",
        "object": "list",
        "model": body.model,
        "results": [_ranked(index, found[index], texts[index] if shown else None) for index in best],
        "usage": usage_of(request),
    }


def _ranked(index: int, score: float, text: str | None) -> RankedDocument:
    ranked: RankedDocument = {"index": index, "relevance_score": score}
    if text is not None:
        ranked["document"] = {"text": text}
    return ranked


async def _scores_of(body: PairRequest, request: PoolingRequest, vectors: AsyncGenerator[Pooled, None]) -> list[float]:
    def score(pooled: Pooled) -> float:
        logits = pooled.vector.astype(np.float64).reshape(1, 1)
        return float((activated(logits, request.classifier) if body.activated else logits)[0, 0])

    return await in_order(len(request.prompts), vectors, score)
