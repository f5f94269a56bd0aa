import pytest

from loragate.engine.fleet.demand import DemandMeter


def test_shares_are_parts_of_all_work() -> None:
    meter: DemandMeter[str] = DemandMeter(half_life=60)
    assert meter.share("a") == 0.0
    meter.record("a", 30, now=5.0)
    meter.record("b", 10, now=5.0)
    assert meter.shares() == pytest.approx({"a": 0.75, "b": 0.25})


def test_work_fades() -> None:
    meter: DemandMeter[str] = DemandMeter(half_life=60)
    meter.record("a", 8, now=0.0)
    meter.record("b", 1, now=180.0)
    assert meter.share("a") == pytest.approx(0.5)


def test_it_runs_for_years() -> None:
    meter: DemandMeter[str] = DemandMeter(half_life=60)
    for day in range(365):
        meter.record("a", 3, now=day * 86400.0)
        meter.record("b", 1, now=day * 86400.0)
    assert meter.shares() == pytest.approx({"a": 0.75, "b": 0.25})


def test_the_smallest_are_dropped() -> None:
    meter: DemandMeter[int] = DemandMeter(half_life=60, max_keys=10)
    for key in range(11):
        meter.record(key, key + 1, now=0.0)
    assert sorted(meter.shares()) == [6, 7, 8, 9, 10]
