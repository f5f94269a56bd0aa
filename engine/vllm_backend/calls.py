"""The conversion of requests to calls of vLLM, and of its steps to outputs."""

import hashlib
import secrets
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from loragate.engine.sequence.output import ErrorCode, Failure, FinishReason, Output
from loragate.engine.sequence.request import Request, SamplingParams
from loragate.engine.sequence.sequence import Sequence
from loragate.engine.vllm_backend.lark import lark_text
from loragate.engine.vllm_backend.llm import Call, Lora, Step

_FINISH = {"stop": FinishReason.STOP, "length": FinishReason.LENGTH}
_SEED_BITS = 63


def unmapped(request: Request) -> str | None:
    """Return which part of a request vLLM cannot serve as we do, and why, or None.

    `draft_tokens` is not among them: it changes no token, only how fast they come.
    """
    if request.pooling is not None:
        return "pooling: this engine runs vLLM for generation, which computes no embeddings beside it"
    if request.thinking is not None:
        return "thinking: this engine runs vLLM, which cannot bound a thought nor begin a grammar after it"
    return None


def call_from(sequence: Sequence, lora: Lora | None, eos: frozenset[int]) -> Call:
    """Return the call for one completion. Without a salt its prefix gets a random one: it is shared with nothing.

    Raise GrammarRejected.
    """
    request = sequence.request
    return Call(
        id=f"{request.session_id}-{request.request_id}-{sequence.index}-{sequence.arrival}",
        prompt=request.prompt,
        cache_salt=request.cache_salt.hex() or secrets.token_hex(16),
        lora=lora,
        sampling=_sampling(request, sequence.index, eos),
        grammar=None if request.grammar is None else lark_text(request.grammar),
    )


def _sampling(request: Request, index: int, eos: frozenset[int]) -> dict[str, Any]:
    """Return fields of vLLM's SamplingParams. EOS is one of the stop tokens, so that only our list of them counts."""
    params = request.sampling
    stop = params.stop_token_ids if params.ignore_eos else params.stop_token_ids | eos
    return {
        "max_tokens": max(1, params.max_tokens),
        "min_tokens": params.min_tokens,
        "seed": _seed(params, index),
        "temperature": params.temperature,
        "top_k": params.top_k,
        "top_p": params.top_p,
        "min_p": params.min_p,
        "repetition_penalty": params.repetition_penalty,
        "presence_penalty": params.presence_penalty,
        "frequency_penalty": params.frequency_penalty,
        "logit_bias": dict(params.logit_bias) or None,
        "stop_token_ids": sorted(stop),
        "ignore_eos": True,
        "logprobs": params.top_logprobs,
        "prompt_logprobs": request.prompt_logprobs if index == 0 else None,
    }


def _seed(params: SamplingParams, index: int) -> int:
    """Return a seed of its own for each completion of a request."""
    digest = hashlib.sha256(f"{params.seed}:{index}".encode()).digest()
    return int.from_bytes(digest[:8], "little") >> (64 - _SEED_BITS)


def outputs_from(sequence: Sequence, step: Step) -> Iterator[Output]:
    """Yield the outputs of a step, and record its tokens in the sequence. The end comes with the last one."""
    first = not sequence.computed
    if first:
        sequence.computed, sequence.cached_tokens = sequence.prompt_length, step.cached_tokens
    if step.prompt_logprobs is not None:
        yield Output(sequence.request, sequence.index, prompt_logprobs=step.prompt_logprobs)
    tokens = step.tokens if sequence.generates else ()
    logprobs = step.logprobs if tokens and step.logprobs else (None,) * len(tokens)
    for place, (token, logprob) in enumerate(zip(tokens, logprobs, strict=True)):
        sequence.tokens.append(token)
        cached = sequence.cached_tokens if first and place == 0 else 0
        last = place == len(tokens) - 1
        output = Output(sequence.request, sequence.index, token, logprob, cached_tokens=cached)
        yield _ended(output, sequence, step.finish) if last and step.finish else output
    if step.finish and not tokens:
        cached = 0 if sequence.generates else sequence.cached_tokens
        yield _ended(Output(sequence.request, sequence.index, cached_tokens=cached), sequence, step.finish)


def _ended(output: Output, sequence: Sequence, reason: str) -> Output:
    """Return the output with the end of its sequence."""
    finish = _FINISH.get(reason, FinishReason.ERROR) if sequence.generates else FinishReason.LENGTH
    error = Failure(ErrorCode.INTERNAL, f"vLLM ended it ({reason})") if finish is FinishReason.ERROR else None
    return replace(output, finish=finish, error=error, computed=sequence.usage)
