"""Logprobs of prompt tokens: equal to PEFT's in any chunks, in any batch and with any cache."""

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from scored_prompts import ScoredPrompt, check, scored_prompt
from thinned import thinned
from tiny_models import add_adapter, greedy, make_model, prompt_logprobs

from loragate.engine.local import LocalEngine
from loragate.engine.scheduling.step_budget import MAX_SCORED_ROWS, MIN_CHUNK
from loragate.engine.sequence.output import ErrorCode, FinishReason
from loragate.engine.sequence.pooling import Pooling
from loragate.engine.sequence.sequence import Sequence
from loragate.engine.server.conversions import delta_from, request_from
from loragate.v1 import engine_pb2 as pb
from tests.engine.conftest import Tiny

PROMPT = [(7 * i * i) % 90 + 3 for i in range(100)]
SALT = b"salt"
TOP = 3
Start = Callable[..., LocalEngine]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    """A model with weights of a usual size, so that float32 is exact to 1e-5."""
    root = tmp_path_factory.mktemp("calm")
    model = make_model("llama", initializer_range=0.1)
    model.save_pretrained(root / "base")
    adapters = {name: add_adapter(model, root / name, seed, r=4) for seed, name in enumerate("abcd")}
    return Tiny(model, root / "base", adapters)


def submit(engine: LocalEngine, prompt: list[int] = PROMPT, adapter: str | None = "a", **options: Any) -> int:
    return engine.submit(prompt, adapter, **({"prompt_logprobs": TOP, "max_tokens": 0} | options))


def scored(engine: LocalEngine, request: int) -> ScoredPrompt:
    return scored_prompt(engine.result(request))


def check_peft(tiny: Any, found: ScoredPrompt, prompt: list[int] = PROMPT, adapter: str | None = "a") -> None:
    check(found, prompt, prompt_logprobs(tiny.model, prompt, adapter and tiny.adapters[adapter]), TOP)


@pytest.mark.parametrize(
    ("chunk", "late"), thinned(product([1, 16, 33, 512], ["off", "on"]), {(16, "on"), (33, "off")})
)
def test_a_prompt_in_chunks(start: Start, tiny: Any, chunk: int, late: str) -> None:
    engine = start(max_batch_tokens=chunk, max_batch_size=1, async_scheduling=late)
    request = submit(engine, max_tokens=4)
    check_peft(tiny, scored(engine, request))
    found = engine.tokens(request)
    assert found == greedy(tiny.model, PROMPT, 4, tiny.adapters["a"], draft=found)
    assert engine.core.blocks.used == 0


@pytest.mark.parametrize("late", ["off", "on"])
def test_a_request_that_generates_nothing(start: Start, tiny: Any, late: str) -> None:
    engine = start(async_scheduling=late)
    outputs = engine.result(submit(engine))
    check_peft(tiny, scored_prompt(outputs))
    assert [output.finish for output in outputs[:-1]] == [None] * (len(outputs) - 1)
    assert outputs[-1].finish is FinishReason.LENGTH
    assert outputs[-1].computed == (100, 0, 0)
    assert engine.core.metrics.generated_tokens == 0
    assert not engine.core.metrics.open()


@pytest.mark.parametrize("late", thinned(["off", "on"], {"on"}))
def test_neighbours_change_nothing(start: Start, tiny: Any, late: str) -> None:
    """All of one request's rows may be rows of logits, those of others may not be; adapters and pooling differ."""
    engine = start(max_batch_tokens=64, max_batch_size=16, adapter_slots=3, async_scheduling=late)
    cases = [(PROMPT[at : at + 7 + 11 * at], name) for at, name in enumerate([None, "b", "c", "a", "d", "b", None])]
    others = [engine.submit(PROMPT[at:], name, max_tokens=20) for at, name in enumerate([None, "b", "c"])]
    pooled = engine.submit(PROMPT, "b", pooling=Pooling.MEAN)
    requests = [submit(engine, prompt, name, max_tokens=at % 3) for at, (prompt, name) in enumerate(cases)]
    for request, (prompt, name) in zip(requests, cases, strict=True):
        check_peft(tiny, scored(engine, request), prompt, name)
    for at, (other, name) in enumerate(zip(others, [None, "b", "c"], strict=True)):
        engine.result(other)
        found = engine.tokens(other)
        assert found == greedy(tiny.model, PROMPT[at:], 20, name and tiny.adapters[name], draft=found)
    assert engine.result(pooled)[-1].embedding == pytest.approx(engine.embed(PROMPT, "b", Pooling.MEAN), abs=1e-4)


def test_no_step_scores_more_rows_than_its_budget(start: Start, tiny: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither for one prompt nor for several, whether the model is slower than the target or there is none."""
    for max_step_ms, bounds in ((1e-6, {64, MIN_CHUNK}), (None, {MAX_SCORED_ROWS})):
        engine = start(max_step_ms=max_step_ms)
        execute, counts = engine.core._runner.execute, list[int]()

        def counted(rows: dict[Sequence, int], execute: Any = execute, counts: list[int] = counts) -> Any:
            result = execute(rows)
            counts.append(len(result.scored_logits))
            assert len(result.logits) == len(result.sampled) <= len(rows)
            return result

        monkeypatch.setattr(engine.core._runner, "execute", counted)
        requests = [submit(engine, PROMPT * 3, max_tokens=at) for at in range(3)]
        for request in requests:
            check_peft(tiny, scored(engine, request), PROMPT * 3)
        assert max(counts) == max(bounds)
        assert set(counts[1:]) <= {*bounds, *range(MIN_CHUNK)} or max_step_ms is None
        assert sum(counts) == 3 * 299


def test_short_prompts(start: Start, tiny: Any) -> None:
    """The first token has no logprob, so a prompt of one token has none at all."""
    engine = start()
    for length in (1, 2, 3):
        for tokens in (0, 2):
            request = submit(engine, PROMPT[:length], max_tokens=tokens)
            check_peft(tiny, scored(engine, request), PROMPT[:length])
            found = engine.tokens(request)
            assert found == greedy(tiny.model, PROMPT[:length], tokens, tiny.adapters["a"], draft=found)


def test_cached_blocks_are_not_read_and_are_written(start: Start, tiny: Any) -> None:
    engine = start(max_batch_tokens=40, max_batch_size=4)
    engine.generate(PROMPT, "a", cache_salt=SALT)
    first = engine.result(submit(engine, cache_salt=SALT))
    assert first[-1].computed == (100, 0, 0), "a block of another request was read"
    check_peft(tiny, scored_prompt(first))
    longer = [*PROMPT, *PROMPT[:50]]
    engine.result(submit(engine, longer, cache_salt=SALT))
    (*_, last) = engine.result(engine.submit(longer, "a", cache_salt=SALT, max_tokens=1))
    assert last.computed == (150 - 144, 144, 1), "its blocks were not written"
    assert engine.core.blocks.prefix is not None
    assert engine.core.blocks.prefix.stats().total.looked_up == 100 + 150, "what is not looked up does not count"


@pytest.mark.parametrize(("salt", "late"), thinned(product([b"", SALT], ["off", "on"]), {(SALT, "on"), (b"", "off")}))
def test_a_preempted_prompt_is_scored_once(
    start: Start, tiny: Any, monkeypatch: pytest.MonkeyPatch, late: str, salt: bytes
) -> None:
    """Also where it continues from blocks of its own that it has scored."""
    engine = start(max_batch_tokens=16, max_batch_size=4, async_scheduling=late)
    scheduler, preempted = engine.core.scheduler, []
    schedule = scheduler.schedule

    def preempting_twice() -> dict[Sequence, int]:
        for sequence in list(scheduler.running):
            due = sequence.computed > (40, 100)[min(1, len(preempted))]
            if sequence.scoring is not None and due and len(preempted) < 2:
                preempted.append(sequence.computed)
                scheduler.seats.preempt(scheduler._scheduled[sequence])
        return schedule()

    monkeypatch.setattr(scheduler, "schedule", preempting_twice)
    request = submit(engine, max_tokens=6, cache_salt=salt)
    check_peft(tiny, scored(engine, request))
    found = engine.tokens(request)
    assert found == greedy(tiny.model, PROMPT, 6, tiny.adapters["a"], draft=found)
    assert len(preempted) == 2
    assert engine.result(request)[-1].computed == (100, 0, 6)


@pytest.mark.parametrize("late", ["off", "on"])
def test_a_step_that_runs_out_of_memory_is_scored_again(
    start: Start, tiny: Any, monkeypatch: pytest.MonkeyPatch, late: str
) -> None:
    engine = start(async_scheduling=late)
    execute = engine.core._runner.execute

    def bounded(rows: dict[Sequence, int]) -> Any:
        result = execute(rows)
        if sum(rows.values()) > 7:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return result

    monkeypatch.setattr(engine.core._runner, "execute", bounded)
    check_peft(tiny, scored(engine, submit(engine)))


def test_completions_of_one_prompt_are_scored_once(start: Start, tiny: Any) -> None:
    engine = start()
    for tokens in (0, 3):
        request = submit(engine, n=3, max_tokens=tokens)
        outputs = engine.result(request, 3)
        assert {output.index for output in outputs if output.prompt_logprobs is not None} == {0}
        check_peft(tiny, scored_prompt(outputs))
        assert [len(engine.tokens(request, index)) for index in range(3)] == [tokens] * 3


def test_alternatives_do_not_depend_on_what_neighbours_want(start: Start) -> None:
    engine = start()
    none, many = submit(engine, prompt_logprobs=0), submit(engine, prompt_logprobs=200)
    assert all(pairs == [] for pairs in scored(engine, none).top)
    assert all(len(pairs) == 96 for pairs in scored(engine, many).top), "no more than the vocabulary has"
    for pairs, alone in zip(scored(engine, many).top, scored(engine, submit(engine)).top, strict=True):
        # The steps are cut by time, and a product's rounding depends on its number of rows.
        assert dict(pairs[:TOP]) == pytest.approx(dict(alone), rel=1e-5)
    found = scored(engine, many)
    for token, logprob, rank, pairs in zip(PROMPT[1:], found.logprobs, found.ranks, found.top, strict=True):
        assert dict(pairs)[token] == logprob
        assert pairs[rank - 1][1] == logprob


@pytest.mark.parametrize("kind", thinned(["own head", "head", "trained tokens"], {"own head"}))
def test_an_adapters_own_head_is_used(start: Start, tiny: Any, tmp_path: Path, kind: str) -> None:
    options: dict[str, Any] = {
        "own head": {"modules_to_save": ["lm_head"]},
        "head": {"target_modules": ["lm_head", "q_proj"]},
        "trained tokens": {"trainable_token_indices": {"lm_head": list(range(0, 96, 2))}},
    }[kind]
    adapter = add_adapter(tiny.model, tmp_path / "own", 9, **options)
    engine = start({**tiny.adapters, "own": adapter})
    own, other = submit(engine, PROMPT, "own", max_tokens=3), submit(engine, PROMPT, "a")
    check(scored(engine, own), PROMPT, prompt_logprobs(tiny.model, PROMPT, adapter), TOP)
    check_peft(tiny, scored(engine, other))
    engine.result(own)
    found = engine.tokens(own)
    assert found == greedy(tiny.model, PROMPT, 3, adapter, draft=found)


@pytest.mark.parametrize("chunk", thinned([16, 512], {16}))
def test_activated_lora_applies_from_its_invocation_on(start: Start, tiny: Any, tmp_path: Path, chunk: int) -> None:
    options = {"target_modules": ["lm_head", "q_proj", "v_proj"], "alora_invocation_tokens": [1, 2]}
    adapter = add_adapter(tiny.model, tmp_path / "alora", 9, **options)
    engine = start({"alora": adapter}, max_batch_tokens=chunk, max_batch_size=4)
    invoked = [*PROMPT[:60], 1, 2, *PROMPT[60:80]]
    found = scored(engine, submit(engine, invoked, "alora"))
    expected = prompt_logprobs(tiny.model, invoked, adapter)
    check(found, invoked, expected, TOP)
    check(scored(engine, submit(engine, PROMPT, "alora")), PROMPT, prompt_logprobs(tiny.model, PROMPT), TOP)
    without = prompt_logprobs(tiny.model, invoked)
    assert torch.allclose(expected[:60], without[:60], atol=1e-5)
    assert not torch.allclose(expected[61:], without[61:], atol=1e-2)


@pytest.mark.parametrize("tokens", thinned([0, 4], {0}))
def test_an_overflow_fails_only_its_own_request(start: Start, tiny: Any, tmp_path: Path, tokens: int) -> None:
    huge = add_adapter(tiny.model, tmp_path / "huge", 9)
    tensors = {k: torch.full_like(v, 3e18) for k, v in load_file(huge / "adapter_model.safetensors").items()}
    save_file(tensors, huge / "adapter_model.safetensors")
    engine = start({**tiny.adapters, "huge": huge}, max_batch_tokens=64, max_batch_size=4)
    bad = submit(engine, PROMPT, "huge", cache_salt=SALT, max_tokens=tokens)
    good = submit(engine, cache_salt=SALT, max_tokens=tokens)
    (failed,) = engine.result(bad)
    assert failed.error is not None
    assert failed.error.code is ErrorCode.NON_FINITE
    check_peft(tiny, scored(engine, good))


def test_a_prompt_may_fill_the_context_if_nothing_follows(start: Start, tiny: Any) -> None:
    engine = start(max_model_len=64, kv_cache_tokens=64)
    check_peft(tiny, scored(engine, submit(engine, PROMPT[:64])), PROMPT[:64])
    for rejected in (submit(engine, PROMPT[:64], max_tokens=1), submit(engine, PROMPT[:9], pooling=Pooling.LAST)):
        (output,) = engine.result(rejected)
        assert output.error is not None
        assert output.error.code is ErrorCode.INVALID_REQUEST


def test_prompt_logprobs_over_grpc(start: Start) -> None:
    engine = start()
    message = pb.Submit(prompt_token_ids=PROMPT, prompt_logprobs=0, prompt_only=True, traceparent="t")
    request = request_from(message, 1)
    assert (request.prompt_logprobs, request.sampling.max_tokens) == (0, 0)
    plain = request_from(pb.Submit(prompt_token_ids=PROMPT), 1)
    assert (plain.prompt_logprobs, plain.sampling.max_tokens) == (None, 1)
    first, *_, last = map(delta_from, engine.result(submit(engine)))
    assert len(first.prompt_logprobs.ranks) == len(first.prompt_logprobs.logprobs) > 0
    assert first.prompt_logprobs.top == TOP
    assert len(first.prompt_logprobs.top_token_ids) == TOP * len(first.prompt_logprobs.ranks)
    assert len(first.prompt_logprobs.top_logprobs) == len(first.prompt_logprobs.top_token_ids)
    assert not last.HasField("prompt_logprobs")
    assert (last.finish_reason, last.computed.prompt_tokens) == (pb.FINISH_REASON_LENGTH, 100)
