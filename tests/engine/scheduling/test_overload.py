"""Requests rejected before any work: bounds, deadlines, and the time after which to retry."""

import time
from collections.abc import Callable

import pytest
from stepping import Stepping

from loragate.engine.local import LocalEngine
from loragate.engine.scheduling.overload import QueueBounds
from loragate.engine.scheduling.scheduler import Limits
from loragate.engine.sequence.output import ErrorCode, Failure
from loragate.engine.sequence.request import Share

NOW = 1000.0


def bounded(total: int = 16, per_tenant: int = 8, seats: int = 2) -> Stepping:
    return Stepping(limits=Limits(64, seats, 1 << 20, queue=QueueBounds(total, per_tenant)))


def offer(engine: Stepping, tenant: str, now: float = NOW, **request: float) -> Failure | None:
    """Submit as the step loop does: reject or accept."""
    n = int(request.pop("n", 1))
    asked = engine.request(tenant, n=n, **request)  # type: ignore[arg-type]
    failure = engine.scheduler.rejection(asked, now)
    if failure is None:
        engine.submit(tenant, n=n, **request)  # type: ignore[arg-type]
    return failure


def measured(engine: Stepping, steps: int, seconds: float) -> None:
    """Run steps that take this long each."""
    for _ in range(steps):
        engine.step()
        engine.scheduler.record_step(engine.scheduler.work, seconds)


def test_a_tenants_queue_is_bounded() -> None:
    engine = bounded(total=100)
    taken = [offer(engine, "flood") for _ in range(20)]
    assert taken.index(next(filter(None, taken))) == 8 + 2, "eight wait, two will have seats"
    failure = taken[-1]
    assert failure is not None
    assert failure.code is ErrorCode.OVERLOADED
    assert failure.own_queue
    assert failure.retry_after is not None
    assert failure.retry_after > 0


def test_floods_leave_room_for_others() -> None:
    """A tenant without waiting requests is accepted, until very many tenants wait."""
    engine = bounded(total=16, per_tenant=16)
    for tenant in ("a", "b", "c"):
        for _ in range(40):
            offer(engine, tenant)
        assert engine.scheduler._counters.interactive.find(tenant).waiting >= 2, tenant
    assert offer(engine, "another") is None


def test_a_full_queue_rejects_every_tenant() -> None:
    engine = bounded(total=4, per_tenant=4)
    rejected = [failure for i in range(12) if (failure := offer(engine, f"tenant {i}"))]
    assert rejected
    assert not rejected[-1].own_queue


def test_a_place_is_free_again_after_a_request_was_served() -> None:
    engine = bounded()
    while offer(engine, "t") is None:
        pass
    engine.step()
    while not engine.finished:
        engine.step()
    engine.step()
    assert offer(engine, "t") is None


def test_n_completions_take_n_places_and_may_exceed_the_bound_alone() -> None:
    engine = bounded(per_tenant=4)
    assert offer(engine, "t", n=16) is None, "no other request waits"
    assert offer(engine, "t", n=1) is not None


def test_the_retry_time_is_estimated_from_the_queue() -> None:
    """It is half of the queue, at the measured rate: each request has 8 units of prompt and 10 tokens of 2 units."""
    engine = bounded(per_tenant=20, total=100)
    for _ in range(22):
        assert offer(engine, "t", prompt=8, new=10) is None
    measured(engine, 9, seconds=0.1)
    failure = offer(engine, "t")
    assert failure is not None
    served = 2 * (8 + 9 * 2)
    assert failure.retry_after == pytest.approx(20 * 28 / (served / 0.9) / 2, rel=0.05)


def test_a_deadline_that_has_passed_is_rejected_at_once() -> None:
    engine = bounded()
    failure = offer(engine, "t", deadline=NOW - 1)
    assert failure is not None
    assert failure.code is ErrorCode.OVERLOADED
    assert engine.at_rest()


def test_a_deadline_before_the_end_of_the_queue_is_rejected_at_once() -> None:
    engine = bounded(per_tenant=100, total=1000)
    for _ in range(50):
        offer(engine, "t", prompt=8, new=10)
    measured(engine, 10, seconds=0.1)
    assert offer(engine, "t", deadline=NOW + 5) is not None
    assert offer(engine, "t", deadline=NOW + 500) is None
    assert offer(engine, "other", deadline=NOW + 5) is None, "another tenant's queue is its own"


def test_a_request_past_its_deadline_is_rejected_before_any_work() -> None:
    engine = bounded(per_tenant=100, total=1000)
    offer(engine, "t", new=500)
    offer(engine, "t", new=500)
    engine.step()
    offer(engine, "t", deadline=NOW + 5)
    offer(engine, "t", deadline=NOW + 50)
    assert engine.scheduler.next_deadline == NOW + 5
    assert not engine.scheduler.expired(NOW + 4)
    ((sequence, failure),) = engine.scheduler.expired(NOW + 6)
    assert sequence.request.share.deadline == NOW + 5
    assert not sequence.computed
    assert failure.code is ErrorCode.OVERLOADED
    assert failure.retry_after
    assert engine.scheduler.next_deadline == NOW + 50


def test_the_prompts_own_time_counts() -> None:
    """A prompt of 60 tokens at 10 ms each cannot finish within 0.3 s."""
    engine = bounded()
    engine.submit("t", prompt=50, new=2)
    measured(engine, 1, seconds=0.5)
    assert offer(engine, "t", prompt=60, deadline=NOW + 0.3) is not None
    assert offer(engine, "t", prompt=20, deadline=NOW + 0.3) is None


def test_work_that_was_begun_is_not_discarded() -> None:
    """Not even the work of a sibling that still waits."""
    engine = bounded(seats=1)
    sequences = engine.submit("t", n=2, new=20, deadline=NOW + 5)
    engine.run(3)
    assert not sequences[1].computed
    assert not engine.scheduler.expired(NOW + 100)
    engine.until(*sequences)
    assert engine.at_rest()


def test_the_step_loop_rejects_and_continues(
    start: Callable[..., LocalEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request that waits alone for weights that never arrive is rejected at its deadline, without another event."""
    engine = start(adapter_slots=1)
    monkeypatch.setattr(engine.core.adapters, "_request_read", lambda key: None)
    late = engine.submit([5, 9], "a", share=Share("tenant", deadline=time.monotonic() + 0.2))
    error = engine.result(late)[-1].error
    assert error is not None
    assert error.code is ErrorCode.OVERLOADED
    assert not engine.tokens(late)
    assert engine.generate([5, 9], max_tokens=3)


def test_the_step_loop_sheds(start: Callable[..., LocalEngine]) -> None:
    engine = start(max_batch_size=1, max_waiting_per_tenant=2)
    first = engine.submit([5], max_tokens=400)
    engine.wait_for(first, 1)
    requests = [engine.submit([5, i], max_tokens=2) for i in range(8)]
    errors = [error for request in requests[2:] if (error := engine.result(request)[-1].error)]
    assert [error.code for error in errors] == [ErrorCode.OVERLOADED] * 6
    assert all(error.own_queue for error in errors)
    for request in requests[:2]:
        assert engine.result(request)[-1].error is None
