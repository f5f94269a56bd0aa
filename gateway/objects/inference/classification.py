"""Labels of texts, in vLLM's shape, and those of tokens."""

import secrets
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from typing import Literal, NotRequired, TypeVar

import numpy as np
import numpy.typing as npt
from typing_extensions import TypedDict

from loragate.gateway.generation.request import Pooled, PoolingRequest
from loragate.gateway.objects.common import Count
from loragate.gateway.objects.inference.completion_head import UnixTime
from loragate.gateway.schemas.inference.classification import ClassifyRequest
from loragate.peft_format.classification import Classifier, ProblemType, Task

Values = npt.NDArray[np.float64]
T = TypeVar("T")


class InputUsage(TypedDict):
    """Tokens of all inputs together."""

    prompt_tokens: Count
    total_tokens: Count


class TokenClassification(TypedDict):
    """The label of one token. `token` is the token as the vocabulary spells it; in a text, it has the characters from
    `start` to `end`, which is not included, and none if the tokenizer added it."""

    token_id: Count
    token: str
    start: NotRequired[Count]
    end: NotRequired[Count]
    label: str
    score: float
    probs: list[float]


class Classification(TypedDict):
    """The labels of input number `index`. `probs` are in the order of the response's `labels`; `label` is the one with
    the highest, which is its `score`. Of a TOKEN_CLS adapter, `tokens` has them for each token in their place."""

    object: Literal["classification"]
    index: Count
    num_classes: Count
    label: NotRequired[str]
    score: NotRequired[float]
    probs: NotRequired[list[float]]
    tokens: NotRequired[list[TokenClassification]]


class Classifications(TypedDict):
    """The labels of all inputs, in their order."""

    id: str
    object: Literal["list"]
    created: UnixTime
    model: str
    labels: list[str]
    data: list[Classification]
    usage: InputUsage


async def classifications(
    body: ClassifyRequest, request: PoolingRequest, vectors: AsyncGenerator[Pooled, None]
) -> Classifications:
    """Return the whole response."""
    classifier = request.classifier

    def item(pooled: Pooled) -> Classification:
        head: Classification = {
            "object": "classification",
            "index": pooled.index,
            "num_classes": len(classifier.labels),
        }
        logits = pooled.vector.astype(np.float64).reshape(-1, len(classifier.labels))
        rows = activated(logits, classifier) if body.activated else logits
        if classifier.task is Task.SEQUENCE:
            return {**head, **_best(rows[0], classifier)}
        return {**head, "tokens": list(_tokens(request, pooled.index, rows))}

    data = await in_order(len(request.prompts), vectors, item)
    return {
        "id": f"classify-{secrets.token_hex(12)}",
        "object": "list",
        "created": int(time.time()),
        "model": body.model,
        "labels": list(classifier.labels),
        "data": data,
        "usage": usage_of(request),
    }


def _tokens(request: PoolingRequest, index: int, rows: Values) -> Iterator[TokenClassification]:
    prompt = request.prompts[index]
    spelled = request.base.tokenizer.token_strs(prompt)
    for position, (token_id, token, row) in enumerate(zip(prompt, spelled, rows, strict=True)):
        best = _best(row, request.classifier)
        found: TokenClassification = {
            "token_id": token_id,
            "token": token,
            "label": best["label"],
            "score": best["score"],
            "probs": best["probs"],
        }
        if request.spans:
            found["start"], found["end"] = request.spans[index][position]
        yield found


class _Best(TypedDict):
    label: str
    score: float
    probs: list[float]


def _best(row: Values, classifier: Classifier) -> _Best:
    best = int(row.argmax())
    return {"label": classifier.labels[best], "score": float(row[best]), "probs": row.tolist()}


def activated(logits: Values, classifier: Classifier) -> Values:
    """Return what logits [rows, labels] stand for, by the classifier's problem type."""
    match classifier.activation:
        case ProblemType.SINGLE_LABEL:
            powers = np.exp(logits - logits.max(axis=1, keepdims=True))
            return powers / powers.sum(axis=1, keepdims=True)  # type: ignore[no-any-return]
        case ProblemType.MULTI_LABEL:
            return np.exp(-np.logaddexp(0, -logits))  # 1 / (1 + exp(-x)), without overflow
        case ProblemType.REGRESSION:
            return logits


async def in_order(count: int, vectors: AsyncGenerator[Pooled, None], item: Callable[[Pooled], T]) -> list[T]:
    """Return an item for each of `count` prompts, in their order; each is made when its vector arrives."""
    found: dict[int, T] = {}
    async with aclosing(vectors):
        async for pooled in vectors:
            found[pooled.index] = item(pooled)
    return [found[index] for index in range(count)]


def usage_of(request: PoolingRequest) -> InputUsage:
    """Return the usage of a request that generates nothing."""
    tokens = request.prompt_tokens
    return {"prompt_tokens": tokens, "total_tokens": tokens}
