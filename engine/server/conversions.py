"""Conversions between protobuf and the engine's data types, with defaults for values that proto3 cannot distinguish
from absent ones."""

import math
import os
import time
from collections.abc import Mapping

from loragate.engine.grammar.spec import JSON_OBJECT, Grammar, GrammarKind, choice_grammar
from loragate.engine.grammar.thinking import Thinking
from loragate.engine.scheduling.overload import QueueLoad
from loragate.engine.sequence.output import ErrorCode, FinishReason, Output, TokenLogprob
from loragate.engine.sequence.pooling import Pooling
from loragate.engine.sequence.prompt_logprobs import PromptLogprobs
from loragate.engine.sequence.prompt_lookup import MAX_DRAFT_TOKENS
from loragate.engine.sequence.request import AdapterKey, Request, RequestTrace, SamplingParams, Share
from loragate.v1 import engine_pb2 as pb

_FINISH = {
    None: pb.FINISH_REASON_UNSPECIFIED,
    FinishReason.STOP: pb.FINISH_REASON_STOP,
    FinishReason.LENGTH: pb.FINISH_REASON_LENGTH,
    FinishReason.ERROR: pb.FINISH_REASON_ERROR,
    FinishReason.ABORTED: pb.FINISH_REASON_ABORTED,
}
_POOLING = {
    pb.POOLING_LAST: Pooling.LAST,
    pb.POOLING_MEAN: Pooling.MEAN,
    pb.POOLING_CLASSIFY: Pooling.CLASSIFY,
    pb.POOLING_CLASSIFY_TOKENS: Pooling.CLASSIFY_TOKENS,
}
ERRORS = {
    ErrorCode.INVALID_REQUEST: pb.ERROR_CODE_INVALID_REQUEST,
    ErrorCode.ADAPTER_UNAVAILABLE: pb.ERROR_CODE_ADAPTER_UNAVAILABLE,
    ErrorCode.NON_FINITE: pb.ERROR_CODE_NON_FINITE,
    ErrorCode.INTERNAL: pb.ERROR_CODE_INTERNAL,
    ErrorCode.OVERLOADED: pb.ERROR_CODE_OVERLOADED,
}


def request_from(submit: pb.Submit, session_id: int) -> Request:
    """Return a client's request; a missing seed is drawn here."""
    adapter = None
    if submit.HasField("adapter"):
        adapter = AdapterKey(submit.adapter.tenant_id, submit.adapter.digest)
    return Request(
        session_id=session_id,
        request_id=submit.request_id,
        prompt=tuple(submit.prompt_token_ids),
        adapter=adapter,
        sampling=_sampling_from(submit.sampling, prompt_only=submit.prompt_only),
        n=max(1, submit.n),
        share=_share_from(submit.share),
        cache_salt=submit.cache_salt,
        grammar=_grammar_from(submit.grammar),
        draft_tokens=min(submit.draft_tokens, MAX_DRAFT_TOKENS),
        pooling=_POOLING.get(submit.pooling),
        thinking=_thinking_from(submit.thinking) if submit.HasField("thinking") else None,
        prompt_logprobs=submit.prompt_logprobs if submit.HasField("prompt_logprobs") else None,
        trace=RequestTrace(submit.traceparent) if submit.traceparent else None,
    )


def delta_from(output: Output) -> pb.Delta:
    """Return one step's output of one sequence."""
    delta = pb.Delta(
        request_id=output.request.request_id,
        index=output.index,
        finish_reason=_FINISH[output.finish],
        cached_tokens=output.cached_tokens,
        embedding=output.embedding,
    )
    if output.token is not None:
        delta.token_ids.append(output.token)
    if output.logprob is not None:
        delta.logprobs.append(_logprob_from(output.logprob))
    if output.prompt_logprobs is not None:
        delta.prompt_logprobs.CopyFrom(_prompt_logprobs_from(output.prompt_logprobs))
    if output.computed is not None:
        delta.computed.prompt_tokens, delta.computed.cached_tokens, delta.computed.generated_tokens = output.computed
    trace = output.request.trace if output.prompt_logprobs is None else None  # the prompt is not done yet
    if trace is not None and (timings := trace.report(output.request.received, time.monotonic())) is not None:
        delta.timings.queue_seconds, delta.timings.prefill_seconds = timings
    if output.error is not None:
        failure = output.error
        delta.error.code, delta.error.message = ERRORS[failure.code], failure.message
        delta.error.retry_after_ms = round(1000 * (failure.retry_after or 0))
        delta.error.own_queue = failure.own_queue
    return delta


def load_from(load: QueueLoad, served: Mapping[str, float]) -> pb.Load:
    """Return the load of the queue, and the units that were served."""
    queues = (pb.TenantQueue(tenant_id=q.tenant_id, weight=q.weight, seconds=q.seconds) for q in load.tenants)
    return pb.Load(
        request_seconds=load.request_seconds,
        active_weight=load.active_weight,
        tenants=queues,
        served=(pb.TenantService(tenant_id=tenant_id, units=units) for tenant_id, units in served.items()),
    )


def _share_from(share: pb.Share) -> Share:
    deadline = time.monotonic() + share.deadline_ms / 1000 if share.deadline_ms else None
    weight = share.weight if share.weight > 0 else 1.0
    elsewhere = share.elsewhere if 0 < share.elsewhere < math.inf else 0.0
    if share.batch:
        return Share(share.tenant_id, weight, share.priority, batch=True)
    return Share(share.tenant_id, weight, share.priority, deadline, elsewhere)


def _grammar_from(grammar: pb.Grammar) -> Grammar | None:
    match grammar.WhichOneof("kind"):
        case "json_schema":
            return Grammar(GrammarKind.JSON_SCHEMA, grammar.json_schema)
        case "json_object":
            return JSON_OBJECT
        case "regex":
            return Grammar(GrammarKind.REGEX, grammar.regex)
        case "choice":
            return choice_grammar(grammar.choice.options)
        case "lark":
            return Grammar(GrammarKind.LARK, grammar.lark)
        case _:
            return None


def _thinking_from(thinking: pb.Thinking) -> Thinking:
    return Thinking(
        end=tuple(thinking.end),
        end_marker=tuple(thinking.end_marker or thinking.end),
        max_tokens=thinking.max_tokens if thinking.HasField("max_tokens") else None,
        open=thinking.open,
        start=tuple(thinking.start),
    )


def _sampling_from(sampling: pb.Sampling, *, prompt_only: bool) -> SamplingParams:
    seed = sampling.seed if sampling.HasField("seed") else int.from_bytes(os.urandom(8), "little")
    return SamplingParams(
        max_tokens=0 if prompt_only else max(1, sampling.max_tokens),
        seed=seed,
        temperature=sampling.temperature,
        top_k=sampling.top_k,
        top_p=sampling.top_p or 1.0,
        min_p=sampling.min_p,
        repetition_penalty=sampling.repetition_penalty or 1.0,
        presence_penalty=sampling.presence_penalty,
        frequency_penalty=sampling.frequency_penalty,
        logit_bias=tuple(sorted(sampling.logit_bias.items())),
        stop_token_ids=frozenset(sampling.stop_token_ids),
        ignore_eos=sampling.ignore_eos,
        min_tokens=sampling.min_tokens,
        top_logprobs=sampling.top_logprobs if sampling.HasField("top_logprobs") else None,
    )


def _logprob_from(logprob: TokenLogprob) -> pb.TokenLogprob:
    top = [pb.Candidate(token_id=token, logprob=value) for token, value in logprob.top]
    return pb.TokenLogprob(logprob=logprob.logprob, top=top)


def _prompt_logprobs_from(given: PromptLogprobs) -> pb.PromptLogprobs:
    return pb.PromptLogprobs(
        logprobs=given.logprobs,
        ranks=given.ranks,
        top=given.top,
        top_token_ids=given.top_ids,
        top_logprobs=given.top_logprobs,
    )
