"""Speculation changes how many steps an output takes, and nothing else."""

from collections.abc import Callable
from typing import Any

import pytest
from tiny_models import greedy

from loragate.engine.local import LocalEngine
from loragate.engine.sequence.output import FinishReason

REPEATING = [40, 41, 42] * 12
OTHER = [60, 61, 62, 63, 64]
Start = Callable[..., LocalEngine]


def steps(engine: LocalEngine, prompt: list[int], **options: Any) -> tuple[list[int], int]:
    before = engine.core.metrics.steps
    tokens = engine.generate(prompt, **options)
    return tokens, engine.core.metrics.steps - before


def test_greedy_tokens_equal_peft_with_any_draft(start: Start, tiny) -> None:  # type: ignore[no-untyped-def]
    engine = start(max_batch_size=8)
    for adapter in (None, "a", "b"):
        found = [engine.generate(REPEATING, adapter, max_tokens=48, draft_tokens=count) for count in (1, 3, 8)]
        expected = greedy(tiny.model, REPEATING, 48, adapter and tiny.adapters[adapter], draft=found[0])
        assert found == [expected] * 3
    metrics = engine.core.metrics
    assert 0 < metrics.spec_decode_accepted_tokens < metrics.spec_decode_draft_tokens, "some guesses were to be wrong"


def test_accepted_drafts_save_steps(start: Start) -> None:
    """A strong bias makes the model repeat one token, so every draft is accepted."""
    engine = start()
    bias = {"logit_bias": ((7, 100.0),), "max_tokens": 40}
    plain, many = steps(engine, OTHER, **bias)
    guessed, few = steps(engine, OTHER, draft_tokens=4, **bias)
    assert plain == guessed == [7] * 40
    assert few < many // 2


def test_in_a_mixed_batch_with_preemption(start: Start, tiny) -> None:  # type: ignore[no-untyped-def]
    engine = start(kv_cache_tokens=256, max_batch_tokens=32, max_batch_size=6, adapter_slots=2)
    cases = [(REPEATING, name, 30 + i) for i, name in enumerate([None, "a", "b", "c", "a", None, "d"])]
    cases += [(OTHER, name, 20) for name in ("a", "c")]
    requests = [
        engine.submit(prompt, name, max_tokens=count, draft_tokens=5 * (i % 2))
        for i, (prompt, name, count) in enumerate(cases)
    ]
    for request, (prompt, name, count) in zip(requests, cases, strict=True):
        engine.result(request)
        found = engine.tokens(request)
        assert found == greedy(tiny.model, prompt, count, name and tiny.adapters[name], draft=found)
    assert engine.core.scheduler.preemptions > 0
    assert engine.core.blocks.used == 0


@pytest.mark.parametrize(
    "sampling",
    [
        {"temperature": 0.7, "seed": 3},
        {"temperature": 0.3, "top_p": 0.8, "seed": 4, "repetition_penalty": 1.2},
        {"frequency_penalty": 0.5, "presence_penalty": 0.2},
        {"min_tokens": 20, "ignore_eos": False},
    ],
    ids=str,
)
def test_sampled_tokens_are_the_same_too(sampling: dict[str, Any], start: Start) -> None:
    """The sampler draws by position, and penalties count the tokens that were accepted before each."""
    engine = start()
    options = {"max_tokens": 40, "top_logprobs": 2} | sampling
    plain = engine.result(engine.submit(REPEATING, "a", **options))
    guessed = engine.result(engine.submit(REPEATING, "a", draft_tokens=6, **options))
    assert [o.token for o in plain] == [o.token for o in guessed]
    for one, other in zip(plain, guessed, strict=True):
        assert one.logprob is not None
        assert other.logprob is not None
        assert other.logprob.logprob == pytest.approx(one.logprob.logprob, abs=1e-3)
        assert other.finish == one.finish


def test_an_end_within_a_draft_ends_the_sequence(start: Start) -> None:
    engine = start()
    bias = {"logit_bias": ((7, 100.0),), "max_tokens": 40, "draft_tokens": 6}
    request = engine.submit([7] * 6, stop_token_ids=frozenset([7]), **bias)
    outputs = engine.result(request)
    assert [o.token for o in outputs] == [7]
    assert outputs[-1].finish is FinishReason.STOP
    exact = engine.submit([7] * 6, **(bias | {"max_tokens": 5}))
    assert [o.token for o in engine.result(exact)] == [7] * 5
    assert engine.core.blocks.used == 0


def test_drafts_never_exceed_the_context(start: Start) -> None:
    engine = start(max_model_len=64)
    request = engine.submit([7] * 40, logit_bias=((7, 100.0),), max_tokens=500, draft_tokens=16)
    outputs = engine.result(request)
    assert len(outputs) == 24
    assert outputs[-1].finish is FinishReason.LENGTH
