"""Batching, adapter paging, cancellation and failure in the running step loop."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_models import greedy

from loragate.engine.local import LocalEngine
from loragate.engine.sequence.output import ErrorCode, FinishReason
from loragate.engine.sequence.request import Request, SamplingParams
from loragate.engine.sequence.sequence import Sequence, SlotLease

PROMPT = [5, 9, 13, 21]
Start = Callable[..., LocalEngine]


def finished(engine: LocalEngine, request: int, n: int = 1) -> FinishReason | None:
    return engine.result(request, n)[-1].finish


def at_rest(engine: LocalEngine) -> None:
    """Return whether no sequence runs, waits, or holds a page or a slot."""
    scheduler = engine.core.scheduler
    assert not scheduler.running
    assert not scheduler.waiting
    assert engine.core.blocks.used == 0
    assert all(slot.references == 0 for slot in engine.core.adapters._slots)


def test_one_slot_serves_b_between_many_a(start: Start, tiny) -> None:
    """With A, B, A, A, … a resident adapter does not overtake forever."""
    engine = start(adapter_slots=1, max_batch_size=4)
    first = [engine.submit(PROMPT, "a", max_tokens=20) for _ in range(2)]
    engine.wait_for(first[0], 1)
    b = engine.submit(PROMPT, "b", max_tokens=4)
    crowd = [engine.submit(PROMPT, "a", max_tokens=20) for _ in range(40)]
    engine.result(b)
    unserved = [request for request in crowd if not engine.tokens(request)]
    assert len(unserved) > 20, "b waited until nearly all later requests for a were through"
    for request in (*first, *crowd):
        engine.result(request)
    found = engine.tokens(b)
    assert found == greedy(tiny.model, PROMPT, 4, tiny.adapters["b"], draft=found)
    at_rest(engine)


def test_a_slot_in_flight_is_never_evicted(start: Start, tiny) -> None:
    engine = start(adapter_slots=2, max_batch_size=8)
    long = engine.submit(PROMPT, "a", max_tokens=80)
    engine.wait_for(long, 1)
    for _ in range(3):
        for name in ("b", "c", "d"):
            engine.generate(PROMPT, name, max_tokens=2)
    engine.result(long)
    found = engine.tokens(long)
    assert found == greedy(tiny.model, PROMPT, 80, tiny.adapters["a"], draft=found)
    assert engine.core.adapters.counters.evictions >= 6


def test_a_reassigned_slot_stops_the_sequence(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """The generation check is what stands between a bug and another tenant's weights."""
    engine = start(adapter_slots=1)
    acquire = engine.core.adapters.acquire

    def stale(key):  # type: ignore[no-untyped-def]
        lease = acquire(key)
        return lease and SlotLease(lease.slot, lease.generation - 1)

    monkeypatch.setattr(engine.core.adapters, "acquire", stale)
    request = engine.submit(PROMPT, "a")
    outputs = engine.result(request)
    assert outputs[-1].error is not None
    assert outputs[-1].error[0] is ErrorCode.INTERNAL
    assert not engine.tokens(request)


def test_preempted_sequences_continue_exactly(start: Start, tiny) -> None:
    engine = start(kv_cache_tokens=160, max_model_len=120)
    requests = [engine.submit([3 + i, 7], name, max_tokens=60) for i, name in enumerate(("a", "b", None, "c"))]
    for i, (request, name) in enumerate(zip(requests, ("a", "b", None, "c"), strict=True)):
        engine.result(request)
        found = engine.tokens(request)
        assert found == greedy(tiny.model, [3 + i, 7], 60, name and tiny.adapters[name], draft=found)
    assert engine.core.scheduler.preemptions > 0
    at_rest(engine)


def test_sampling_survives_preemption_and_neighbours(start: Start) -> None:
    def drawn(engine: LocalEngine) -> list[int]:
        return engine.generate(PROMPT, "a", max_tokens=50, temperature=1.3, seed=42, top_p=0.9)

    alone = drawn(start())
    crowded = start(kv_cache_tokens=160, max_model_len=120)
    neighbours = [crowded.submit([9, i], "b", max_tokens=60, temperature=1.0, seed=i) for i in range(4)]
    assert drawn(crowded) == alone
    for neighbour in neighbours:
        crowded.result(neighbour)
    assert crowded.core.scheduler.preemptions > 0


def test_n_completions_differ_and_the_first_equals_a_single_one(start: Start) -> None:
    engine = start()
    request = engine.submit(PROMPT, "a", n=3, max_tokens=12, temperature=1.0, seed=3)
    engine.result(request, n=3)
    completions = [tuple(engine.tokens(request, index)) for index in range(3)]
    assert len(set(completions)) == 3
    assert engine.generate(PROMPT, "a", max_tokens=12, temperature=1.0, seed=3) == list(completions[0])


def test_an_abort_frees_everything_in_any_state(start: Start) -> None:
    engine = start(adapter_slots=1, max_batch_size=1)
    decoding = engine.submit(PROMPT, "a", max_tokens=400)
    engine.wait_for(decoding, 1)
    queued = engine.submit(PROMPT, None, max_tokens=400)
    blocked = engine.submit(PROMPT, "b", max_tokens=400)
    for request in (queued, blocked, decoding):
        engine.abort(request)
    assert engine.generate(PROMPT, "c", max_tokens=2)
    assert not engine.tokens(queued)
    assert not engine.tokens(blocked)
    at_rest(engine)


def test_an_aborted_request_gets_at_most_the_current_steps_token(start: Start) -> None:
    engine = start()
    request = engine.submit(PROMPT, "a", max_tokens=400)
    engine.wait_for(request, 3)
    engine.abort(request)
    engine.generate(PROMPT, None, max_tokens=1)  # the abort is older, so it was processed first
    had = len(engine.tokens(request))
    engine.generate(PROMPT, None, max_tokens=5)
    assert len(engine.tokens(request)) == had


def test_the_last_output_says_what_was_computed(start: Start) -> None:
    """Also of a request that its client leaves, and of one that finds its prompt in the cache."""
    engine = start()
    prompt = [3 + token for token in range(40)]
    whole = engine.result(engine.submit(prompt, "a", max_tokens=5, cache_salt=b"s"))[-1]
    assert whole.computed == (40, 0, 5)
    request = engine.submit(prompt, "a", max_tokens=400, cache_salt=b"s")
    engine.wait_for(request, 3)
    engine.abort(request)
    left = engine.result(request)[-1]
    had = len(engine.tokens(request))
    assert left.finish is FinishReason.ABORTED
    assert left.computed is not None
    assert left.computed[:2] == (8, 32)
    assert had <= left.computed.generated_tokens <= had + 1  # one may have been under way
    at_rest(engine)


def test_one_completion_is_aborted_and_the_others_go_on(start: Start) -> None:
    engine = start()
    request = engine.submit(PROMPT, "a", n=3, max_tokens=60, temperature=1.0)
    engine.wait_for(request, 1)
    engine.abort(request, 1)
    outputs = engine.result(request, n=3)
    ends = {output.index: output.finish for output in outputs if output.finish is not None}
    assert ends == {0: FinishReason.LENGTH, 1: FinishReason.ABORTED, 2: FinishReason.LENGTH}
    assert [len(engine.tokens(request, index)) for index in (0, 2)] == [60, 60]
    assert len(engine.tokens(request, 1)) < 60
    at_rest(engine)


def test_a_preempted_prompt_counts_once() -> None:
    """Up to where it once was; what is computed again is not counted again."""
    sequence = Sequence(Request(1, 1, tuple(range(10)), None, SamplingParams(max_tokens=4, seed=0)), 0)
    sequence.computed, sequence.max_computed, sequence.cached_tokens = 3, 8, 2
    assert sequence.usage == (6, 2, 0)
    sequence.computed = 12
    assert sequence.usage == (8, 2, 0)


def test_stop_tokens_eos_and_length(start: Start, tiny) -> None:
    engine = start()
    text = engine.generate(PROMPT, "a", max_tokens=10)
    stop = text[4]
    request = engine.submit(PROMPT, "a", max_tokens=10, stop_token_ids=frozenset([stop]))
    assert finished(engine, request) is FinishReason.STOP
    assert engine.tokens(request) == text[: text.index(stop) + 1]
    request = engine.submit(PROMPT, "a", max_tokens=10)
    assert finished(engine, request) is FinishReason.LENGTH
    eos = engine.submit(PROMPT, "a", max_tokens=500, ignore_eos=False, logit_bias=((2, 100.0),), min_tokens=3)
    assert finished(engine, eos) is FinishReason.STOP
    assert engine.tokens(eos)[3:] == [2]


def test_generation_ends_at_the_models_context(start: Start) -> None:
    engine = start(max_model_len=32)
    request = engine.submit(PROMPT, max_tokens=500)
    assert finished(engine, request) is FinishReason.LENGTH
    assert len(engine.tokens(request)) == 32 - len(PROMPT)


def test_a_broken_adapter_fails_its_own_requests_only(start: Start, tiny, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "adapter_config.json").write_text("{")
    engine = start(adapters=tiny.adapters | {"broken": broken})
    other = engine.submit(PROMPT, "b", max_tokens=40)
    bad = engine.result(engine.submit(PROMPT, "broken"))[-1]
    assert bad.error is not None
    assert bad.error[0] is ErrorCode.ADAPTER_UNAVAILABLE
    engine.result(other)
    found = engine.tokens(other)
    assert found == greedy(tiny.model, PROMPT, 40, tiny.adapters["b"], draft=found)
    assert engine.result(engine.submit(PROMPT, "broken"))[-1].error, "and it fails again, not for ever waits"
    at_rest(engine)


def test_an_overflowing_adapter_affects_no_other_request(start: Start, tiny, tmp_path: Path) -> None:
    """Its weights are finite, their product is not: its own request fails, its neighbours and later users of its pages
    do not.
    """
    huge = tmp_path / "huge"
    huge.mkdir()
    tensors = {
        k: torch.full_like(v, 3e18) for k, v in load_file(tiny.adapters["a"] / "adapter_model.safetensors").items()
    }
    save_file(tensors, huge / "adapter_model.safetensors")
    (huge / "adapter_config.json").write_text((tiny.adapters["a"] / "adapter_config.json").read_text())
    engine = start(adapters=tiny.adapters | {"huge": huge}, kv_cache_tokens=128, max_model_len=64)
    neighbour = engine.submit(PROMPT, "b", max_tokens=30)
    bad = engine.result(engine.submit([7] * 20, "huge"))[-1]
    assert bad.error is not None
    assert bad.error[0] is ErrorCode.NON_FINITE
    engine.result(neighbour)
    found = engine.tokens(neighbour)
    truth = greedy(tiny.model, PROMPT, 30, tiny.adapters["b"], draft=found)
    assert found == truth
    followers = [engine.submit(PROMPT, "b", max_tokens=30) for _ in range(4)]
    for follower in followers:
        engine.result(follower)
        assert engine.tokens(follower) == truth


@pytest.mark.parametrize(
    ("prompt", "sampling"),
    [
        ([], {}),
        ([1] * 512, {}),
        ([96], {}),
        ([1], {"stop_token_ids": frozenset([96])}),
        ([1], {"logit_bias": ((99, 1.0),)}),
    ],
)
def test_requests_that_the_gateway_should_reject_are_rejected(start: Start, prompt: list[int], sampling: dict) -> None:
    engine = start()
    output = engine.result(engine.submit(prompt, **sampling))[-1]
    assert output.error is not None
    assert output.error[0] is ErrorCode.INVALID_REQUEST


def test_a_failing_step_fails_its_batch_and_the_engine_continues(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = start()
    with monkeypatch.context() as patch:
        patch.setattr(engine.core._runner, "execute", lambda rows: 1 / 0)
        output = engine.result(engine.submit(PROMPT, "a"))[-1]
    assert output.error is not None
    assert output.error[0] is ErrorCode.INTERNAL
    assert engine.generate(PROMPT, "a", max_tokens=3)
    at_rest(engine)
