"""A device that runs out of memory, or stops responding: steps shrink, and only the request at fault fails."""

import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tiny_models import greedy

from loragate.engine.adapters.slot import Copy
from loragate.engine.local import LocalEngine
from loragate.engine.scheduling.step_budget import StepBound
from loragate.engine.sequence.output import ErrorCode
from loragate.engine.sequence.sequence import Sequence
from tests.engine.scheduling.test_scheduling import at_rest

PROMPTS = [[5 + i, 9, 13, 21, 8, 3 + i] * 4 for i in range(4)]
NAMES = ("a", None, "b", "c")
Start = Callable[..., LocalEngine]


def broken(*_: Any) -> None:
    raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered")


def runs_out(engine: LocalEngine, monkeypatch: pytest.MonkeyPatch, when: Callable[[dict[Sequence, int]], bool]) -> None:
    execute = engine.core._runner.execute

    def bounded(rows: dict[Sequence, int]) -> Any:
        if when(rows):
            raise torch.OutOfMemoryError("CUDA out of memory")
        return execute(rows)

    monkeypatch.setattr(engine.core._runner, "execute", bounded)


@pytest.mark.parametrize("late", ["off", "on"])
@pytest.mark.parametrize("room", [7, 1])
def test_steps_shrink_until_they_fit_and_nothing_is_lost(
    start: Start, tiny: Any, monkeypatch: pytest.MonkeyPatch, room: int, late: str
) -> None:
    engine = start(async_scheduling=late)
    runs_out(engine, monkeypatch, lambda rows: sum(rows.values()) > room)
    requests = [engine.submit(p, name, max_tokens=10) for p, name in zip(PROMPTS, NAMES, strict=True)]
    for request, prompt, name in zip(requests, PROMPTS, NAMES, strict=True):
        assert engine.result(request)[-1].error is None
        found = engine.tokens(request)
        assert found == greedy(tiny.model, prompt, 10, name and tiny.adapters[name], draft=found)
    at_rest(engine)


def test_drafts_without_room_are_dropped(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = start()
    failed: list[int] = []

    def too_many(rows: dict[Sequence, int]) -> bool:
        if any(s.draft for s in rows) and sum(rows.values()) > 3:
            failed.append(sum(rows.values()))
            return True
        return False

    runs_out(engine, monkeypatch, too_many)
    nines = {"max_tokens": 12, "draft_tokens": 4, "logit_bias": ((9, 100.0),)}
    requests = [engine.submit([9, 9, 9, 9], **nines) for _ in range(2)]  # type: ignore[arg-type]
    for request in requests:
        engine.result(request)
        assert engine.tokens(request) == [9] * 12
    assert failed


def test_memory_of_a_failed_step_is_released_before_the_retry(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = start()
    execute, held, alive = engine.core._runner.execute, list[weakref.ref[torch.Tensor]](), list[bool]()

    def failing(rows: dict[Sequence, int]) -> Any:
        if held:
            return execute(rows)
        activations = torch.empty(3)
        held.append(weakref.ref(activations))
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(engine.core._runner, "execute", failing)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: alive.append(held[0]() is not None))
    assert len(engine.generate(PROMPTS[0], max_tokens=3)) == 3
    assert alive == [False]


@pytest.mark.parametrize("late", ["off", "on"])
def test_only_a_request_without_room_for_one_token_fails(
    start: Start, tiny: Any, monkeypatch: pytest.MonkeyPatch, late: str
) -> None:
    engine = start(async_scheduling=late)
    runs_out(engine, monkeypatch, lambda rows: any(s.request.prompt == (9, 7) and s.generated > 2 for s in rows))
    culprit = engine.submit([9, 7], max_tokens=30)
    others = [engine.submit(p, name, max_tokens=20) for p, name in zip(PROMPTS, NAMES, strict=True)]
    output = engine.result(culprit)[-1]
    assert output.error is not None
    assert output.error[:2] == (ErrorCode.INTERNAL, "the device does not have enough memory for this request")
    assert len(engine.tokens(culprit)) == 3
    for request, prompt, name in zip(others, PROMPTS, NAMES, strict=True):
        engine.result(request)
        found = engine.tokens(request)
        assert found == greedy(tiny.model, prompt, 20, name and tiny.adapters[name], draft=found)
    at_rest(engine)


@pytest.mark.parametrize("late", ["off", "on"])
def test_a_failing_step_fails_its_requests_and_keeps_earlier_tokens(
    start: Start, tiny: Any, monkeypatch: pytest.MonkeyPatch, late: str
) -> None:
    engine = start(async_scheduling=late)
    execute = engine.core._runner.execute
    fail = [True]

    def failing(rows: dict[Sequence, int]) -> Any:
        if fail and any(s.generated == 3 for s in rows):
            fail.clear()
            raise RuntimeError("no such kernel")
        return execute(rows)

    monkeypatch.setattr(engine.core._runner, "execute", failing)
    output = engine.result(failed := engine.submit(PROMPTS[0], "a", max_tokens=10))[-1]
    assert output.error is not None
    assert output.error[:2] == (ErrorCode.INTERNAL, "the engine failed in this step")
    found = engine.tokens(failed)
    assert found == greedy(tiny.model, PROMPTS[0], 3, tiny.adapters["a"], draft=found)
    assert engine.generate(PROMPTS[1], "b", max_tokens=5) == greedy(tiny.model, PROMPTS[1], 5, tiny.adapters["b"])
    at_rest(engine)


def test_a_step_limit_grows_again_after_successful_steps() -> None:
    bound = StepBound(512)
    bound.record_out_of_memory(300)
    bound.record_out_of_memory(150)
    assert bound.rows == 75
    for _ in range(3 * 64):
        bound.record_success()
    assert bound.rows == 512


def test_the_engine_ends_when_the_device_stops_responding(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = start()
    monkeypatch.setattr(engine.core._runner, "execute", lambda rows: 1 / 0)
    monkeypatch.setattr(engine.core._runner, "check_device", broken)
    with pytest.raises(RuntimeError, match="died"):
        engine.result(engine.submit(PROMPTS[0]))


def test_a_failed_copy_ends_the_engine_if_the_device_is_lost(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise an engine without its device would keep rejecting adapters one by one."""
    engine = start(adapter_device_bytes=1 << 20)
    checked: list[bool] = []
    monkeypatch.setattr(Copy, "patches", lambda copy: 1 / 0)
    monkeypatch.setattr(engine.core._runner, "check_device", lambda: checked.append(True))
    output = engine.result(engine.submit(PROMPTS[0], "a"))[-1]
    assert output.error is not None
    assert output.error[0] is ErrorCode.ADAPTER_UNAVAILABLE
    assert checked
    monkeypatch.setattr(engine.core._runner, "check_device", broken)
    with pytest.raises(RuntimeError, match="died"):
        engine.result(engine.submit(PROMPTS[0], "b"))
