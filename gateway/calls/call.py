"""An admitted request: what its endpoint asks of the generation service, counted as it is computed and delivered."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass

from loragate.gateway.calls.request_tokens import ComputedTokens, DeliveredTokens
from loragate.gateway.errors import ApiError
from loragate.gateway.generation.output import Completion, TextDelta, put_together
from loragate.gateway.generation.request import GenerationRequest, Pooled, PoolingRequest
from loragate.gateway.generation.service import GenerationService
from loragate.gateway.limits.lease import Lease


@dataclass(frozen=True, slots=True)
class Admitted:
    """The resources of an admitted request. `headers` are added to every response to it."""

    headers: dict[str, str]
    lease: Lease
    computed: ComputedTokens
    delivered: DeliveredTokens


class TextCall:
    """An admitted chat or text completion. Call exactly one of `stream` and `complete`."""

    def __init__(self, generation: GenerationService, request: GenerationRequest, admitted: Admitted) -> None:
        self.headers = admitted.headers
        self._generation = generation
        self._request = request
        self._lease = admitted.lease
        self._computed = admitted.computed
        self._delivered = admitted.delivered

    def stream(self) -> AsyncGenerator[TextDelta, None]:
        """Yield the deltas of `GenerationService.stream`."""
        return self._deltas(streamed=True)

    async def _deltas(self, *, streamed: bool) -> AsyncGenerator[TextDelta, None]:
        async with aclosing(self._generation.stream(self._request, self._computed)) as deltas:
            async for delta in deltas:
                self._delivered.add(delta, streamed=streamed)
                if self._computed.tokens > self._lease.reserved:
                    self._lease.extend(self._computed.tokens)
                yield delta

    async def complete(self) -> list[Completion]:
        """Return all completions, in the order of their indices. Raise ApiError."""
        try:
            deltas = self._deltas(streamed=False)
            completions = await put_together(deltas, len(self._request.prompts) * self._request.n)
        except ApiError:
            self._delivered.revert()
            raise
        self._delivered.commit()
        return completions


class PoolingCall:
    """An admitted request for vectors: embeddings, or logits of a classifier."""

    def __init__(self, generation: GenerationService, request: PoolingRequest, admitted: Admitted) -> None:
        self.headers = admitted.headers
        self._generation = generation
        self._request = request
        self._computed = admitted.computed
        self._delivered = admitted.delivered

    async def pool(self) -> AsyncGenerator[Pooled, None]:
        """Yield the vectors of `GenerationService.pool`. The client receives all of them or none."""
        try:
            async with aclosing(self._generation.pool(self._request, self._computed)) as vectors:
                async for pooled in vectors:
                    self._delivered.add_pooled(self._request.prompts[pooled.index])
                    yield pooled
        except ApiError:
            self._delivered.revert()
            raise
        self._delivered.commit()
