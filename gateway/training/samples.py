"""Samples: requests to samplers, run as any other request of their tenant, with tokens rather than text as results."""

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from functools import partial
from itertools import islice

import numpy as np

from loragate.adapter_store.adapters.adapter import ResolvedAdapter
from loragate.adapter_store.auth.principal import TenantPrincipal
from loragate.adapter_store.errors import StoreError
from loragate.adapter_store.ids import random_base62
from loragate.adapter_store.notices.wakeups import GATEWAY, Wakeups
from loragate.adapter_store.store import Store
from loragate.adapter_store.training.objects import ErrorCategory, Outcome, Sampler, request_id_of
from loragate.adapter_store.training.samplers import SAMPLE_LEASE
from loragate.gateway.calls.admission import Admission
from loragate.gateway.config.gateway import GatewayConfig
from loragate.gateway.engine.link import EngineLink
from loragate.gateway.errors import ApiError, InvalidRequest, TooManyRequests
from loragate.gateway.generation.output import Completion
from loragate.gateway.generation.prompt_logprobs import PromptLogprobs, check_prompt_logprobs
from loragate.gateway.generation.request import GenerationRequest, Target, share_of
from loragate.gateway.generation.tokenize import check_length, room_for_completion
from loragate.gateway.schemas.training.sampling import SampleCreate
from loragate.gateway.training.futures import Futures
from loragate.v1 import engine_pb2
from loragate.v1 import training_pb2 as pb

log = logging.getLogger(__name__)

_MAX_OF_TENANT, _MAX_RUNNING = 1024, 8192  # requests that run or wait in this process
_RETRY_SECONDS = 0.5
_RETRIED_SECONDS = 600.0  # for which a request that is rejected because of load is tried again
_NO_TOKEN, _NO_LOGPROB = 0, -99999.0  # of an empty cell


class Samples:
    """Runs the requests that this process has accepted, and records their outcomes."""

    def __init__(
        self,
        store: Store,
        admission: Admission,
        link: EngineLink,
        config: GatewayConfig,
        wakeups: Wakeups,
        futures: Futures,
    ) -> None:
        self._store = store
        self._admission = admission
        self._link = link
        self._config = config
        self._wakeups = wakeups
        self._futures = futures
        self._worker = f"gateway-{random_base62(12)}"
        self._running: set[asyncio.Task[None]] = set()
        self._by_tenant: Counter[str] = Counter()

    async def submit(self, caller: TenantPrincipal, body: SampleCreate, raw: bytes) -> str:
        """Accept a request and return its id; its outcome is recorded later. Raise ApiError, StoreError."""
        if self._by_tenant[caller.tenant_id] >= _MAX_OF_TENANT or self._by_tenant.total() >= _MAX_RUNNING:
            raise TooManyRequests("Too many samples wait already; read the results of some first.")
        async with self._store.tenant(caller.tenant_id, write=True) as scope:
            sampler = await scope.training_samplers.get(body.sampling_session_id)
            request = self._request(caller, sampler, body)
            new = await scope.training_samplers.submit(sampler.id, body.seq_id, raw, self._worker)
        request_id = request_id_of(sampler.id, body.seq_id)
        if new:
            task = asyncio.create_task(self._run(caller, sampler.id, body, request), name=f"sample {request_id}")
            self._running.add(task)
            self._by_tenant[caller.tenant_id] += 1
            task.add_done_callback(partial(self._ended, caller.tenant_id))
        return request_id

    async def run_renewal_loop(self) -> None:
        """Hold this process's requests until cancelled."""
        while True:
            await asyncio.sleep(SAMPLE_LEASE.total_seconds() / 3)
            if not self._running:
                continue
            try:
                async with self._store.admin(write=True) as admin:
                    await admin.training_queue.renew_samples(self._worker)
            except StoreError as error:
                log.warning("samples could not be held: %s", error)

    async def close(self) -> None:
        """Cancel what runs: clients send it again."""
        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.wait(self._running)

    def _ended(self, tenant_id: str, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._by_tenant[tenant_id] -= 1
        if not self._by_tenant[tenant_id]:
            del self._by_tenant[tenant_id]

    def _request(self, caller: TenantPrincipal, sampler: Sampler, body: SampleCreate) -> GenerationRequest:
        base, params, prompt = self._link.base, body.sampling_params, body.prompt.tokens
        if not prompt:
            raise _invalid("prompt", "it is empty")
        if not base.accepts([*prompt, *params.stop_tokens]):
            raise _invalid("prompt", f"token ids must be below {base.manifest.vocab_size}")
        check_length(base, len(prompt), "prompt")
        rest = base.max_model_len - len(prompt)
        limit = room_for_completion(base, len(prompt), params.max_tokens, rest, "prompt")
        scored = body.topk_prompt_logprobs if body.prompt_logprobs or body.topk_prompt_logprobs else None
        if scored is not None:
            check_prompt_logprobs([prompt], scored + 1, "prompt_logprobs")
        sampling = engine_pb2.Sampling(
            max_tokens=limit,
            temperature=params.temperature,
            top_k=max(0, params.top_k),
            top_p=params.top_p,
            stop_token_ids=params.stop_tokens,
            ignore_eos=params.stop is not None and not params.stop,
            top_logprobs=body.topk_sample_logprobs,
        )
        if params.seed is not None:
            sampling.seed = params.seed % (1 << 64)
        return GenerationRequest(
            target=Target(caller.tenant_id, _adapter(sampler, base.manifest.base_digest)),
            base=base,
            prompts=(prompt,),
            sampling=sampling,
            n=body.num_samples,
            stop=params.stop_strings,
            include_stop=True,
            prompt_logprobs=scored,
            share=share_of(caller, None, self._config),
            open_ended=params.max_tokens is None,
        )

    async def _run(
        self, caller: TenantPrincipal, sampler_id: str, body: SampleCreate, request: GenerationRequest
    ) -> None:
        try:
            outcome = Outcome.done(await self._sampled(caller, sampler_id, body, request))
        except ApiError as error:
            category = ErrorCategory.USER if error.status < 500 else ErrorCategory.SERVER
            outcome = Outcome.failed(error.message, category)
        except Exception:
            log.exception("a sample failed")
            outcome = Outcome.failed("The server failed on this sample.", ErrorCategory.SERVER)
        self._futures.resolve(
            caller.tenant_id, sampler_id, body.seq_id, outcome
        )  # before it is durable: it can be sampled again
        while True:
            try:
                async with self._store.tenant(caller.tenant_id, write=True) as scope:
                    await scope.training_samplers.finish(sampler_id, body.seq_id, self._worker, outcome)
                break
            except StoreError as error:
                if error.status < 500:  # the tenant was deleted
                    return
                await asyncio.sleep(_RETRY_SECONDS)
        self._futures.resolve(caller.tenant_id, sampler_id, body.seq_id, outcome)
        self._wakeups.wake(GATEWAY)

    async def _sampled(
        self, caller: TenantPrincipal, sampler_id: str, body: SampleCreate, request: GenerationRequest
    ) -> bytes:
        """Return the response; try again while the request is rejected because of load or a rate."""
        deadline = asyncio.get_running_loop().time() + _RETRIED_SECONDS
        while True:
            try:
                request_id = request_id_of(sampler_id, body.seq_id)
                async with self._admission.admit(
                    caller, request, endpoint="completions", request_id=request_id
                ) as call:
                    completions = await call.complete()
                return _response(completions, body).SerializeToString()
            except ApiError as error:
                if error.status not in (429, 503) or asyncio.get_running_loop().time() > deadline:
                    raise
                retry_after = float(getattr(error, "retry_after", _RETRY_SECONDS))
                await asyncio.sleep(min(10.0, max(_RETRY_SECONDS, retry_after)))


def _adapter(sampler: Sampler, base_digest: str) -> ResolvedAdapter | None:
    if sampler.digest is None:
        return None
    return ResolvedAdapter(
        adapter_id=sampler.id,
        name=sampler.adapter or sampler.id,
        version=sampler.version or 0,
        digest=sampler.digest,
        size_bytes=sampler.size_bytes,
        base_digest=base_digest,
    )


def _response(completions: Sequence[Completion], body: SampleCreate) -> pb.SampleResponse:
    response = pb.SampleResponse(prompt_cache_hit_tokens=sum(each.cached_tokens for each in completions))
    for completion in completions:
        tokens = completion.logprobs
        sequence = response.sequences.add(
            stop_reason=pb.STOP_REASON_STOP if completion.finish_reason == "stop" else pb.STOP_REASON_LENGTH,
            tokens=np.array([each.token_id for each in tokens], "<i4").tobytes(),
            logprobs=np.array([each.logprob for each in tokens], "<f4").tobytes(),
        )
        if body.topk_sample_logprobs:
            top = [each.top for each in tokens]
            sequence.topk_sampled_logprobs.CopyFrom(_top_logprobs(top, body.topk_sample_logprobs))
    scores = completions[0].prompt
    if scores is not None:
        _add_prompt_logprobs(response, scores, body.topk_prompt_logprobs)
    return response


def _add_prompt_logprobs(response: pb.SampleResponse, scores: PromptLogprobs, top: int) -> None:
    tokens = list(scores.tokens(top))
    logprobs = [np.nan if each.logprob is None else each.logprob for each in tokens]
    response.prompt_logprobs = np.array(logprobs, "<f4").tobytes()
    if top:
        response.topk_prompt_logprobs.CopyFrom(_top_logprobs([each.top for each in tokens], top))


def _top_logprobs(rows: Sequence[Sequence[tuple[int, float]]], width: int) -> pb.TopkLogprobs:
    ids = np.full((len(rows), width), _NO_TOKEN, "<i4")
    logprobs = np.full((len(rows), width), _NO_LOGPROB, "<f4")
    for row, cells in enumerate(rows):
        for column, (token_id, logprob) in enumerate(islice(cells, width)):
            ids[row, column], logprobs[row, column] = token_id, logprob
    return pb.TopkLogprobs(token_ids=ids.tobytes(), logprobs=logprobs.tobytes(), k=width, length=len(rows))


def _invalid(param: str, words: str) -> InvalidRequest:
    return InvalidRequest(f"Invalid '{param}': {words}.", param=param, code="invalid_value")
