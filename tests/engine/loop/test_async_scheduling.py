"""Tokens that are read after the next step was launched.

Tokens, ends and counts are the same as without async scheduling, while other sequences join, end, are cancelled or are
preempted.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from thinned import thinned
from tiny_models import add_adapter, greedy

from loragate.engine.execution.model_runner import LastTokens
from loragate.engine.local import LocalEngine
from loragate.engine.loop.in_flight import Draw
from loragate.engine.sequence.output import ErrorCode, FinishReason, Output
from loragate.engine.sequence.pooling import Pooling
from loragate.engine.sequence.prompt_lookup import PromptLookup
from loragate.engine.startup import recorded_steps
from tests.engine.scheduling.test_scheduling import at_rest

Start = Callable[..., LocalEngine]
PROMPTS = [[5, 9, 13, 21] * 6, [40, 41, 42], [7], [(7 * i) % 90 + 3 for i in range(70)]]
NEW = 12
WAYS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.8, "top_p": 0.9, "seed": 3},
    {"temperature": 1.0, "top_k": 7, "seed": 5, "top_logprobs": 2},
    {"repetition_penalty": 1.3, "frequency_penalty": 0.4},
    {"stop_token_ids": frozenset(range(0, 96, 7))},
    {"min_tokens": 4, "stop_token_ids": frozenset(range(0, 96, 5)), "top_logprobs": 0},
    {"draft_tokens": 4, "logit_bias": ((9, 3.0), (13, -2.0))},
    {"n": 2, "temperature": 1.2, "seed": 8},
    {"pooling": Pooling.LAST},
    {"pooling": Pooling.MEAN},
]
CROWDED: dict[str, Any] = {
    "adapter_slots": 2,
    "max_batch_tokens": 40,
    "max_batch_size": 5,
    "kv_cache_tokens": 256,
    "max_model_len": 90,
}


@pytest.fixture(scope="module", params=thinned([False, True], fast={True}))
def engines(
    tiny: Any, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[tuple[LocalEngine, LocalEngine]]:
    """One engine reads every step at once and has room for all; one reads late and has little of everything, its steps
    launched or replayed.
    """
    common = {"threads": 1, "block_size": 8}
    cache = tmp_path_factory.mktemp("cache")
    plain = LocalEngine(tiny.base, cache, tiny.adapters, kv_cache_tokens=4096, max_model_len=90, **common)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recorded_steps, "recorder", lambda device: (lambda launches: launches) if request.param else None)
        late = LocalEngine(tiny.base, cache, tiny.adapters, async_scheduling="on", **CROWDED, **common)
    yield plain, late
    assert bool(late.core.graphs.replayed) == request.param
    plain.close()
    late.close()


@pytest.fixture(scope="module")
def alone(engines: tuple[LocalEngine, LocalEngine]) -> Callable[[int, str | None, int, int], list[Output]]:
    """Return what a request generates without neighbours."""
    known: dict[tuple[Any, ...], list[Output]] = {}

    def outputs(prompt: int, name: str | None, way: int, new: int) -> list[Output]:
        key = prompt, name, way, new
        if key not in known:
            known[key] = list(engines[0].result(submit(engines[0], *key), completions(key)))
        return known[key]

    return outputs


def submit(engine: LocalEngine, prompt: int, name: str | None, way: int, new: int) -> int:
    return engine.submit(PROMPTS[prompt], name, max_tokens=new, cache_salt=b"salt", **WAYS[way])


def client_view(outputs: list[Output], index: int, near: Callable[[Any], Any] = list) -> list[Any]:
    """Return what a client receives, except how much of its prompt was cached; `near` rounds numbers for comparison.

    Without the end of what it aborted, which is for the accounts.
    """
    received = []
    for o in (o for o in outputs if o.index == index and o.finish is not FinishReason.ABORTED):
        logprobs = [] if o.logprob is None else [o.logprob.logprob, *(n for pair in o.logprob.top for n in pair)]
        received.append((o.token, o.finish, o.error, near(logprobs), near(o.embedding or ())))
    return received


def nearly(numbers: Any) -> Any:
    return pytest.approx(list(numbers), rel=1e-3, abs=1e-3)


requests = st.tuples(
    st.integers(0, len(PROMPTS) - 1),
    st.sampled_from((None, "a", "b", "c")),
    st.integers(0, len(WAYS) - 1),
    st.sampled_from([1, 2, NEW]),
    st.sampled_from([0, 0, 1, 3]),  # tokens it has generated before the next one arrives
    st.sampled_from([None, None, None, 0, 2]),  # tokens after which it is cancelled
)


@given(st.lists(requests, min_size=1, max_size=10))
@settings(max_examples=20)
def test_clients_receive_the_same(
    engines: tuple[LocalEngine, LocalEngine],
    alone: Callable[[int, str | None, int, int], list[Output]],
    asked: list[Any],
) -> None:
    engine, metrics = engines[1], engines[1].core.metrics
    before, aborted = metrics.generated_tokens, metrics.aborted
    running = []
    for *what, lead, cancelled in asked:
        number = submit(engine, *what)
        running.append((number, what))
        engine.wait_for(number, lead)
        if cancelled is not None:
            engine.wait_for(number, cancelled)
            engine.abort(number)
    for (number, what), (*_, cancelled) in zip(running, asked, strict=True):
        if cancelled is None:
            engine.result(number, completions(what))
    settle(engine)
    received = [(what, engine._outputs[number]) for number, what in running]
    for (what, outputs), (*_, cancelled) in zip(received, asked, strict=True):
        for index in range(completions(what)):
            expected = client_view(alone(*what), index, nearly)
            found = client_view(outputs, index)
            assert found == expected[: len(found)], what
            assert cancelled is not None or len(found) == len(expected)
    every = [output for _, outputs in received for output in outputs]
    assert metrics.generated_tokens - before == sum(o.token is not None for o in every) + 1
    assert sum(o.finish is not None for o in every) == sum(completions(what) for what, _ in received)
    assert metrics.aborted - aborted == sum(o.finish is FinishReason.ABORTED for o in every)
    prefix = engine.core.blocks.prefix
    assert prefix is not None
    assert all(token >= 0 for known in prefix._known.values() for token in known.content.tokens)


def completions(what: Any) -> int:
    return int(WAYS[what[2]].get("n", 1))


def settle(engine: LocalEngine) -> None:
    """Wait until all commands are processed and no request is left."""
    engine.generate([3], max_tokens=1)
    at_rest(engine)
    assert not engine.core.scheduler._scheduled
    assert not engine.core.metrics._open


@pytest.fixture
def order(monkeypatch: pytest.MonkeyPatch) -> Callable[[LocalEngine], list[str]]:
    """Record the launches and reads of an engine, in order, from now on."""

    def watched(engine: LocalEngine) -> list[str]:
        seen: list[str] = []
        execute, read = engine.core._runner.execute, Draw.read
        monkeypatch.setattr(engine.core._runner, "execute", lambda rows: (seen.append("launch"), execute(rows))[1])
        monkeypatch.setattr(Draw, "read", lambda d: (seen.append("read" if d.sampled_rows else "nothing"), read(d))[1])
        return seen

    return watched


def test_a_step_is_launched_before_the_previous_one_is_read(
    start: Start, tiny: Any, order: Callable[[LocalEngine], list[str]]
) -> None:
    engine = start(async_scheduling="on")
    seen = order(engine)
    assert engine.generate(PROMPTS[1], "a", max_tokens=5) == greedy(tiny.model, PROMPTS[1], 5, tiny.adapters["a"])
    assert seen == ["launch", *4 * ["launch", "read"], "read"], "nothing is launched for one that has all its tokens"
    phases = [[name for name, _ in step.phases] for step in engine.core.timeline.steps()]
    assert phases[0] == ["commands", "schedule", "forward", "sample", "emit"]
    assert phases[1:] == 4 * [["commands", "schedule", "forward", "read", "sample", "emit"]]


def test_on_a_cpu_steps_are_read_at_once(start: Start, order: Callable[[LocalEngine], list[str]]) -> None:
    engine = start()
    seen = order(engine)
    engine.generate(PROMPTS[1], max_tokens=3)
    assert seen == 3 * ["launch", "read"]


def test_an_unforeseen_end_costs_one_row(start: Start, tiny: Any, order: Callable[[LocalEngine], list[str]]) -> None:
    engine = start(async_scheduling="on")
    tokens = greedy(tiny.model, PROMPTS[1], 4)
    assert len(set(tokens)) == 4
    seen = order(engine)
    outputs = engine.result(engine.submit(PROMPTS[1], max_tokens=50, stop_token_ids=frozenset(tokens[2:3])))
    assert [o.token for o in outputs] == tokens[:3]
    assert outputs[-1].finish is FinishReason.STOP
    settle(engine)
    steps = ["launch", *3 * ["launch", "read"]]
    assert seen[:7] == steps
    # The request of `settle` may have come before the last step was read.
    assert next(each for each in seen[7:] if each != "launch") == "nothing", "no token is chosen for it in vain"


def test_speculating_sequences_have_steps_read_at_once_unless_paused(
    start: Start, order: Callable[[LocalEngine], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = start(async_scheduling="on")
    seen = order(engine)
    sevens: dict[str, Any] = {"max_tokens": 20, "draft_tokens": 4, "logit_bias": ((7, 100.0),)}
    assert engine.generate([7] * 6, **sevens) == [7] * 20
    assert seen.count("launch") < 10
    assert "launch launch" not in " ".join(seen)
    seen.clear()
    propose = PromptLookup.propose
    monkeypatch.setattr(PromptLookup, "propose", lambda *a: [8 for _ in propose(*a)])  # always wrong
    assert engine.generate([7] * 6, **sevens) == [7] * 20
    assert seen.count("launch") == 20
    assert "launch launch" in " ".join(seen)


def test_a_preempted_sequence_keeps_its_token_in_flight(
    start: Start, tiny: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = start(async_scheduling="on")
    scheduler, gave_way = engine.core.scheduler, []
    schedule = scheduler.schedule

    def preempting() -> Any:
        for sequence in list(scheduler.running):
            if sequence.unread and sequence.generated in (1, 4, 5):
                gave_way.append(sequence.generated)
                scheduler.seats.preempt(scheduler._scheduled[sequence])
        return schedule()

    monkeypatch.setattr(scheduler, "schedule", preempting)
    running = [(engine.submit(PROMPTS[i], name, max_tokens=6), i, name) for i, name in enumerate(("a", None, "b", "a"))]
    for number, i, name in running:
        engine.result(number)
        found = engine.tokens(number)
        assert found == greedy(tiny.model, PROMPTS[i], 6, name and tiny.adapters[name], draft=found)
    assert {1, 4, 5} <= set(gave_way)
    at_rest(engine)


def test_completions_of_one_prompt_compute_it_once(start: Start) -> None:
    """The next step finds what a step computes, although its tokens have not been read yet."""
    engine = start(async_scheduling="on", max_batch_tokens=512)
    request = engine.submit(PROMPTS[3], n=3, max_tokens=2, cache_salt=b"salt")
    outputs = engine.result(request, 3)
    assert sorted(o.cached_tokens for o in outputs if o.finish is None) == [0, 64, 64]
    assert sum(r.batch.prefill_tokens for r in engine.core.timeline.steps()) == 70 + 2 * 6


def test_numbers_that_are_not_finite_fail_only_their_own_request(start: Start, tiny: Any, tmp_path: Path) -> None:
    """When this is known, a step has already begun with the token that does not exist."""
    huge = add_adapter(tiny.model, tmp_path / "huge", 9)
    tensors = {k: torch.full_like(v, 3e18) for k, v in load_file(huge / "adapter_model.safetensors").items()}
    save_file(tensors, huge / "adapter_model.safetensors")
    engine = start({**tiny.adapters, "huge": huge}, async_scheduling="on")
    good = [engine.submit(PROMPTS[3], name, max_tokens=6, cache_salt=b"salt") for name in ("a", None)]
    bad = engine.submit(PROMPTS[3], "huge", max_tokens=6, cache_salt=b"salt")
    (output,) = engine.result(bad)
    assert output.error is not None
    assert output.error.code is ErrorCode.NON_FINITE
    for number, name in zip(good, ("a", None), strict=True):
        engine.result(number)
        found = engine.tokens(number)
        assert found == greedy(tiny.model, PROMPTS[3], 6, name and tiny.adapters[name], draft=found)
    settle(engine)
    assert engine.core.blocks.prefix is not None
    assert len(engine.core.blocks.prefix._known) == 2 * (len(PROMPTS[3]) // 8 + 1), "what it computed is found no more"


def test_tokens_can_be_changed_outside_inference_mode() -> None:
    """Inference tensors can be changed in inference mode only, and an engine may have been created in it."""
    with torch.inference_mode():
        last = LastTokens(4, torch.device("cpu"))
    last.store(torch.tensor([7, -1]))
    assert last.fill_in(torch.tensor([5, -1, -2])).tolist() == [5, 7, 0]
