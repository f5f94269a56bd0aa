"""The engine's report of the work that waits in its queue."""

import pytest
from stepping import Stepping

from loragate.engine.scheduling.overload import QueueLoad


def busy() -> Stepping:
    """Two seats; ten requests of one tenant, five of another, and one of a third."""
    engine = Stepping(seats=2)
    for tenant, requests, weight in (("many", 10, 1.0), ("paying", 5, 4.0), ("few", 1, 1.0)):
        for _ in range(requests):
            engine.submit(tenant, prompt=8, new=10, weight=weight)
    return engine


def measured(engine: Stepping, steps: int, seconds: float) -> None:
    for _ in range(steps):
        engine.step()
        engine.scheduler.record_step(engine.scheduler.work, seconds)


def test_nothing_is_reported_before_the_first_measurement() -> None:
    assert busy().scheduler.load() == QueueLoad()


def test_seconds_are_those_of_work_at_the_measured_rate() -> None:
    engine = busy()
    measured(engine, 5, seconds=0.1)
    load = engine.scheduler.load()
    queues = {queue.tenant_id: queue for queue in load.tenants}
    assert queues.keys() == {"many", "paying", "few"}
    assert load.active_weight == 6
    assert queues["paying"].weight == 4
    waiting = {tenant: engine.scheduler._counters.interactive.find(tenant).waiting for tenant in queues}
    assert sum(waiting.values()) == 14
    each = 8 + 2 * 10  # units
    rate = 2 * (8 + 5 * 2) / 0.5  # units a second
    assert load.request_seconds == pytest.approx(each / rate, rel=0.1)
    for tenant, queue in queues.items():
        assert queue.seconds == pytest.approx(waiting[tenant] * load.request_seconds)
    assert load.seconds == pytest.approx(14 * load.request_seconds)
    assert load.tenants[0].tenant_id == "many", "the longest-waiting tenant comes first"


def test_an_empty_queue_reports_nothing() -> None:
    engine = busy()
    measured(engine, 5, seconds=0.1)
    while engine.scheduler.waiting:
        measured(engine, 1, seconds=0.1)
    assert engine.scheduler.load() == QueueLoad()
