"""Embeddings in OpenAI's shape."""

import base64
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
import orjson
from pydantic import Field
from typing_extensions import TypedDict

from loragate.gateway.generation.request import Pooled, PoolingRequest
from loragate.gateway.objects.common import Count
from loragate.gateway.schemas.inference.embeddings import EmbeddingRequest

EncodedVector = Annotated[
    list[float] | str,
    Field(description="A list of numbers or, if `encoding_format` is `base64`, their bytes as little-endian float32."),
]
Vector = npt.NDArray[np.float32]


class Embedding(TypedDict):
    """The embedding of input number `index`."""

    object: Literal["embedding"]
    index: Count
    embedding: EncodedVector


class EmbeddingUsage(TypedDict):
    """Tokens of all inputs together."""

    prompt_tokens: Count
    total_tokens: Count


class EmbeddingList(TypedDict):
    """The embeddings, in the order of the inputs."""

    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: EmbeddingUsage


async def embedding_list(
    body: EmbeddingRequest, request: PoolingRequest, vectors: AsyncGenerator[Pooled, None]
) -> EmbeddingList:
    """Return the whole response. Each vector is encoded as JSON when it arrives: encoding thousands of them at the end
    would block the event loop."""
    data: list[Any] = [None] * len(request.prompts)
    async with aclosing(vectors):
        async for pooled in vectors:
            data[pooled.index] = orjson.Fragment(_encoded(body, pooled))
    tokens = request.prompt_tokens
    return {
        "object": "list",
        "data": data,
        "model": body.model,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }


def _encoded(body: EmbeddingRequest, embedding: Pooled) -> bytes:
    vector = _unit(embedding.vector) if body.unit_length else embedding.vector
    value = _base64(vector) if body.encoding_format == "base64" else vector
    item = {"object": "embedding", "index": embedding.index, "embedding": value}
    return orjson.dumps(item, option=orjson.OPT_SERIALIZE_NUMPY)


def _unit(vector: Vector) -> Vector:
    """Normalize to unit length, computed in double precision; a zero vector stays zero."""
    norm = float(np.linalg.norm(vector.astype(np.float64)))
    return (vector / norm).astype(np.float32) if norm else vector


def _base64(vector: Vector) -> str:
    """Encode as little-endian float32."""
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()
