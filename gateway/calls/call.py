"""An admitted request: what its endpoint asks of the generation service, counted on the way."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass

from loragate.gateway.calls.delivered_tokens import Told
from loragate.gateway.errors import ApiError
from loragate.gateway.generation.output import Completion, TextDelta, put_together
from loragate.gateway.generation.request import Embedding, GenerationRequest, PoolingRequest
from loragate.gateway.generation.service import GenerationService
from loragate.gateway.limits.lease import Lease


@dataclass(frozen=True, slots=True)
class Admitted:
    """What a request got at its admission. `headers` belong on every answer to it."""

    headers: dict[str, str]
    lease: Lease
    told: Told


class TextCall:
    """Of chat and text completions. Exactly one of `stream` and `complete` is called."""

    def __init__(self, generation: GenerationService, request: GenerationRequest, admitted: Admitted) -> None:
        self.headers = admitted.headers
        self._generation = generation
        self._request = request
        self._lease = admitted.lease
        self._told = admitted.told

    def stream(self) -> AsyncGenerator[TextDelta, None]:
        """See `GenerationService.stream`."""
        return self._deltas(streamed=True)

    async def _deltas(self, *, streamed: bool) -> AsyncGenerator[TextDelta, None]:
        async with aclosing(self._generation.stream(self._request)) as deltas:
            async for delta in deltas:
                self._told.hear(delta, streamed=streamed)
                if self._told.tokens > self._lease.reserved:
                    self._lease.extend(self._told.tokens)
                yield delta

    async def complete(self) -> list[Completion]:
        """All completions, in the order of their indices. Raises ApiError."""
        try:
            deltas = self._deltas(streamed=False)
            completions = await put_together(deltas, len(self._request.prompts) * self._request.n)
        except ApiError:
            self._told.take_back()
            raise
        self._told.whole()
        return completions


class EmbeddingCall:
    """Of embeddings."""

    def __init__(self, generation: GenerationService, request: PoolingRequest, admitted: Admitted) -> None:
        self.headers = admitted.headers
        self._generation = generation
        self._request = request
        self._told = admitted.told

    async def embed(self) -> AsyncGenerator[Embedding, None]:
        """See `GenerationService.embed`. Its answer comes whole or not at all."""
        try:
            async with aclosing(self._generation.embed(self._request)) as embeddings:
                async for embedding in embeddings:
                    self._told.hear_embedding(self._request.prompts[embedding.index])
                    yield embedding
        except ApiError:
            self._told.take_back()
            raise
        self._told.whole()
