"""Embeddings: which states they are computed from, and what they share with generation."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_models import VOCABULARY, add_adapter, final_states, greedy

from loragate.engine.grammar.spec import JSON_OBJECT
from loragate.engine.local import LocalEngine
from loragate.engine.sequence.output import ErrorCode, FinishReason
from loragate.engine.sequence.pooling import PooledStates, Pooling
from loragate.engine.sequence.sequence import Sequence
from loragate.engine.server.conversions import delta_from, request_from
from loragate.v1 import engine_pb2 as pb

PROMPT = [(7 * i) % 90 + 3 for i in range(100)]
SALT = b"salt"
LAST, MEAN = Pooling.LAST, Pooling.MEAN
Start = Callable[..., LocalEngine]


def expected(tiny: Any, prompt: list[int], pooling: Pooling, adapter: Path | None = None) -> list[float]:
    states = final_states(tiny.model, prompt, adapter)
    return (states[-1] if pooling is LAST else states.mean(dim=0)).tolist()


def close(values: Any) -> Any:
    return pytest.approx(values, rel=1e-4, abs=1e-4)


def outputs(engine: LocalEngine, prompt: list[int], pooling: Pooling, **options: Any) -> Any:
    return engine.result(engine.submit(prompt, pooling=pooling, **options))


@pytest.mark.parametrize("pooling", [LAST, MEAN])
@pytest.mark.parametrize("chunk", [16, 33, 512])
def test_a_long_prompt_in_chunks(start: Start, tiny: Any, chunk: int, pooling: Pooling) -> None:
    engine = start(max_batch_tokens=chunk, max_batch_size=8)
    for name in (None, "a"):
        adapter = name and tiny.adapters[name]
        assert engine.embed(PROMPT, name, pooling) == close(expected(tiny, PROMPT, pooling, adapter))
    assert engine.core.blocks.used == 0


@pytest.mark.parametrize("pooling", [LAST, MEAN])
def test_neighbours_change_nothing(start: Start, pooling: Pooling) -> None:
    """Neither does the position of its rows in the batch."""
    engine = start()
    alone = engine.embed(PROMPT, "a", pooling)
    others = [engine.submit(PROMPT[i : i + 40], name) for i, name in enumerate([None, "b", "c", "a"])]
    crowded = engine.submit(PROMPT, "a", pooling=pooling)
    others += [engine.submit(PROMPT[i:], name, pooling=MEAN) for i, name in enumerate(["a", None, "d"])]
    assert engine.result(crowded)[-1].embedding == close(alone)
    for other in others:
        engine.result(other)


def test_a_prefix_hit_gives_the_same_vector(start: Start, tiny: Any) -> None:
    """A mean needs every token's state: it reads nothing from the cache, and its own blocks are still right."""
    engine = start()
    engine.generate(PROMPT, "a", cache_salt=SALT)
    (last,) = outputs(engine, PROMPT, LAST, adapter="a", cache_salt=SALT)
    (mean,) = outputs(engine, PROMPT, MEAN, adapter="a", cache_salt=SALT)
    assert (last.cached_tokens, mean.cached_tokens) == (96, 0)
    assert last.embedding == close(expected(tiny, PROMPT, LAST, tiny.adapters["a"]))
    assert mean.embedding == close(expected(tiny, PROMPT, MEAN, tiny.adapters["a"]))


def test_generation_reuses_what_an_embedding_computed(start: Start, tiny: Any) -> None:
    engine = start()
    engine.embed(PROMPT, "a", cache_salt=SALT)
    request = engine.submit(PROMPT, "a", cache_salt=SALT)
    assert engine.result(request)[0].cached_tokens == 96
    found = engine.tokens(request)
    assert found == greedy(tiny.model, PROMPT, 8, tiny.adapters["a"], draft=found)


def test_a_preempted_mean_restarts(start: Start, tiny: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = start(max_batch_tokens=16, max_batch_size=4)
    scheduler, preempted = engine.core.scheduler, []
    schedule = scheduler.schedule

    def preempting_once() -> dict[Sequence, int]:
        for sequence in list(scheduler.running):
            if sequence.pooled is not None and sequence.computed > 40 and not preempted:
                preempted.append(sequence.computed)
                scheduler.seats.preempt(scheduler._scheduled[sequence])
        return schedule()

    monkeypatch.setattr(scheduler, "schedule", preempting_once)
    concurrent = engine.submit(PROMPT, max_tokens=40)
    assert engine.embed(PROMPT, "a", MEAN) == close(expected(tiny, PROMPT, MEAN, tiny.adapters["a"]))
    assert preempted
    engine.result(concurrent)
    found = engine.tokens(concurrent)
    assert found == greedy(tiny.model, PROMPT, 40, draft=found)


def test_a_sum_that_restarts() -> None:
    states = torch.arange(12.0).view(6, 2)
    pooled = PooledStates(MEAN, 6)
    pooled.add(states[:4] + 100, 0)
    pooled.add(states[:3], 0)
    pooled.add(states[3:] + 100, 3)  # that step ran out of memory
    pooled.add(states[3:5], 3)
    pooled.add(states[5:], 5)
    assert pooled.result().tolist() == [5.0, 6.0]


@pytest.mark.parametrize("pooling", [LAST, MEAN])
def test_activated_lora_applies_from_its_invocation_on(
    start: Start, tiny: Any, tmp_path: Path, pooling: Pooling
) -> None:
    adapter = add_adapter(tiny.model, tmp_path / "alora", 9, alora_invocation_tokens=[1, 2])
    engine = start({"alora": adapter})
    without, invoked = PROMPT, [*PROMPT, 1, 2, 5]
    assert engine.embed(without, "alora", pooling) == close(expected(tiny, without, pooling))
    assert engine.embed(invoked, "alora", pooling) != close(expected(tiny, invoked, pooling))


def test_an_adapters_own_head_does_not_change_embeddings(start: Start, tiny: Any, tmp_path: Path) -> None:
    """Neighbours' tokens still come from that head."""
    adapter = add_adapter(tiny.model, tmp_path / "head", 9, target_modules=["lm_head"], std=0.5)
    engine = start({"head": adapter})
    request = engine.submit(PROMPT, "head")
    pooled = [engine.submit(PROMPT, "head", pooling=pooling) for pooling in (MEAN, LAST)]
    engine.result(request)
    found = engine.tokens(request)
    assert found == greedy(tiny.model, PROMPT, 8, adapter, draft=found)
    for way, pooling in zip(pooled, (MEAN, LAST), strict=True):
        assert engine.result(way)[-1].embedding == close(expected(tiny, PROMPT, pooling))


@pytest.mark.parametrize("pooling", [LAST, MEAN])
def test_an_overflow_fails_only_its_own_request(start: Start, tiny: Any, tmp_path: Path, pooling: Pooling) -> None:
    huge = add_adapter(tiny.model, tmp_path / "huge", 9)
    tensors = {k: torch.full_like(v, 3e18) for k, v in load_file(huge / "adapter_model.safetensors").items()}
    save_file(tensors, huge / "adapter_model.safetensors")
    engine = start({**tiny.adapters, "huge": huge}, max_batch_tokens=64, max_batch_size=4)
    bad = engine.submit(PROMPT, "huge", pooling=pooling, cache_salt=SALT)
    good = engine.submit(PROMPT, "a", pooling=pooling, cache_salt=SALT)
    (failed,) = engine.result(bad)
    assert failed.error is not None
    assert failed.error.code is ErrorCode.NON_FINITE
    assert failed.embedding is None
    assert engine.result(good)[-1].embedding == close(expected(tiny, PROMPT, pooling, tiny.adapters["a"]))
    (again,) = outputs(engine, PROMPT, pooling, adapter="huge", cache_salt=SALT)
    assert again.error is not None
    assert engine.core.blocks.prefix is not None
    assert engine.core.blocks.prefix.stats().total.from_device == 0, "what it left in the cache was found again"


def test_a_prompt_may_fill_the_context(start: Start, tiny: Any) -> None:
    engine = start(max_model_len=64, kv_cache_tokens=64)
    full = PROMPT[:64]
    assert engine.embed(full, pooling=MEAN) == close(expected(tiny, full, MEAN))
    (rejected,) = outputs(engine, PROMPT[:65], LAST)
    assert rejected.error is not None
    assert rejected.error.code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(("options", "word"), [({"n": 2}, "n must be 1"), ({"grammar": JSON_OBJECT}, "grammar")])
def test_invalid_requests_are_rejected(start: Start, options: dict[str, Any], word: str) -> None:
    (rejected,) = outputs(start(), PROMPT, LAST, **options)
    assert rejected.error is not None
    assert word in rejected.error.message


def test_an_embedding_counts_as_a_request_without_tokens(start: Start) -> None:
    engine = start()
    engine.embed([5], "a", draft_tokens=4)
    engine.embed(PROMPT, pooling=MEAN)
    metrics = engine.core.metrics
    assert (metrics.requests, metrics.prompt_tokens, metrics.generated_tokens) == (2, 101, 0)
    assert metrics.finished[FinishReason.STOP] == 2
    assert sum(metrics.time_to_first_token_seconds.read().counts) == 0
    assert sum(metrics.queue_seconds.read().counts) == 2
    assert not metrics.open()


def test_embeddings_over_grpc(start: Start) -> None:
    engine = start()
    submit = pb.Submit(request_id=7, prompt_token_ids=PROMPT, pooling=pb.POOLING_MEAN)
    request = request_from(submit, 1)
    assert request.pooling is MEAN
    assert request_from(pb.Submit(prompt_token_ids=PROMPT), 1).pooling is None
    (output,) = outputs(engine, PROMPT, MEAN)
    delta = delta_from(output)
    assert list(delta.embedding) == pytest.approx(list(output.embedding), rel=1e-7)
    assert delta.finish_reason == pb.FINISH_REASON_STOP
    assert not delta.token_ids
    assert len(delta.embedding) < VOCABULARY
