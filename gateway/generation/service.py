"""The generation service: runs requests on the engine and turns tokens into text."""

from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Protocol

import numpy as np

from loragate.engine.client.client import Engine
from loragate.engine.client.errors import EngineError
from loragate.engine.client.request import RequestObserver
from loragate.gateway.generation.cache_salt import CacheSalts
from loragate.gateway.generation.choice import Choice
from loragate.gateway.generation.errors import api_error_from
from loragate.gateway.generation.merge import merge
from loragate.gateway.generation.output import TextDelta
from loragate.gateway.generation.prompt_logprobs import PromptLogprobs, after_prompt
from loragate.gateway.generation.request import GenerationRequest, Pooled, PoolingRequest, Target
from loragate.v1 import engine_pb2 as pb

_CONCURRENT_PROMPTS = 64  # of one request, so that it does not fill its tenant's queue in the engine


class EngineRequest(RequestObserver, Protocol):
    """Observes one request to the engine."""

    def abort(self, index: int) -> None:
        """End one of its completions in the engine."""
        ...


class Computed(Protocol):
    """Observes what the engine computes for one request of a client."""

    def observe(self, prompt_tokens: int, completions: int) -> EngineRequest:
        """Return the observer of one prompt's request to the engine."""
        ...


class GenerationService:
    """Shared by all endpoints, each of which adds its own format."""

    def __init__(self, engine: Engine, salts: CacheSalts) -> None:
        self._engine = engine
        self._salts = salts

    def stream(self, request: GenerationRequest, computed: Computed) -> AsyncGenerator[TextDelta, None]:
        """Yield the deltas of all completions, interleaved; the last one of each completion has its finish reason.

        Closing the stream early aborts the request in the engine. Raise ApiError.
        """
        runs = [self._run(request, position, computed) for position in range(len(request.prompts))]
        return runs[0] if len(runs) == 1 else merge(runs)

    async def pool(self, request: PoolingRequest, computed: Computed) -> AsyncGenerator[Pooled, None]:
        """Yield the vector of each prompt, in the order of arrival. Closing this early aborts the rest. Raise
        ApiError."""
        waiting = iter(range(len(request.prompts)))
        count = min(_CONCURRENT_PROMPTS, len(request.prompts))
        workers = [self._pool(request, waiting, computed) for _ in range(count)]
        async with aclosing(merge(workers)) as vectors:
            async for pooled in vectors:
                yield pooled

    async def _pool(
        self, request: PoolingRequest, waiting: Iterator[int], computed: Computed
    ) -> AsyncGenerator[Pooled, None]:
        """Pool one prompt after the other, until none is left."""
        for index in waiting:
            submit = pb.Submit(
                prompt_token_ids=request.prompts[index],
                adapter=request.target.reference,
                share=request.share,
                pooling=request.pooling,
            )
            observer = computed.observe(len(request.prompts[index]), 1)
            async with aclosing(self._deltas(submit, request.target, observer)) as deltas:
                async for delta in deltas:
                    yield Pooled(index, np.array(delta.embedding, dtype=np.float32))

    async def _run(
        self, request: GenerationRequest, position: int, computed: Computed
    ) -> AsyncGenerator[TextDelta, None]:
        prompt = request.prompts[position]
        observer = computed.observe(len(prompt), request.n)
        choices = [Choice(request, prompt, position * request.n + i) for i in range(request.n)]
        constraint = None if request.constraint is None else request.constraint.field
        deltas = self._deltas(_submit(request, prompt), request.target, observer, constraint)
        scores = None if request.scored_alternatives is None else PromptLogprobs(prompt)
        async with aclosing(deltas if scores is None else after_prompt(deltas, scores)) as deltas:
            async for delta in deltas:
                if scores is not None:
                    yield TextDelta(choices[0].index, "", 0, prompt=scores)
                    scores = None
                choice = choices[delta.index]
                if choice.finished:
                    continue
                piece = choice.push(delta)
                done = all(choice.finished for choice in choices)
                # The engine knows no stop strings; leaving aborts the completions that are left at the end.
                if piece.finish_reason and not delta.finish_reason and not done:
                    observer.abort(delta.index)
                is_first = delta.cached_tokens and delta.index == 0
                yield replace(piece, cached_tokens=delta.cached_tokens) if is_first else piece
                if done:
                    return

    async def _deltas(
        self, submit: pb.Submit, target: Target, observer: RequestObserver, constraint: str | None = None
    ) -> AsyncGenerator[pb.Delta, None]:
        """Yield the engine's deltas for a request of the target's tenant. Closing this aborts the request. Raise
        ApiError."""
        submit.cache_salt = self._salts.of(target.tenant_id, target.cache_user)
        try:
            async with self._engine.generate(submit, observer) as deltas:
                async for delta in deltas:
                    yield delta
        except EngineError as error:
            raise api_error_from(error, constraint) from error


def _submit(request: GenerationRequest, prompt: Sequence[int]) -> pb.Submit:
    return pb.Submit(
        prompt_token_ids=prompt,
        adapter=request.target.reference,
        sampling=request.sampling,
        n=request.n,
        grammar=None if request.constraint is None else request.constraint.grammar,
        thinking=None if request.reasoning is None else request.reasoning.segment,
        draft_tokens=request.draft_tokens,
        prompt_logprobs=request.scored_alternatives,
        prompt_only=request.sampling.max_tokens == 0,
        share=request.share or pb.Share(tenant_id=request.target.tenant_id),
    )
