"""The service of tenants over several engines: what engines report, and what they charge for the others."""

import pytest
from stepping import Stepping

from loragate.engine.sequence.sequence import Sequence
from loragate.engine.served_units import MAX_REPORTED, ServedTotals, ServedUnits, ServiceElsewhere
from loragate.v1 import engine_pb2 as pb


def test_only_changes_are_reported_those_served_most_first() -> None:
    served = ServedUnits()
    served.add("a", 3.0)
    served.add("b", 1.0)
    served.add("a", 4.0)
    assert served.changes() == {"a": 7.0, "b": 1.0}
    served.add("b", 1.0)
    assert served.changes() == {"b": 2.0}
    assert served.changes() == {}


def test_tenants_that_no_report_had_room_for_are_in_a_later_one() -> None:
    served = ServedUnits()
    for number in range(MAX_REPORTED + 10):
        served.add(f"tenant-{number}", 1.0 + number)
    first, second = served.changes(), served.changes()
    assert len(first) == MAX_REPORTED
    assert set(second) == {f"tenant-{number}" for number in range(10)}
    assert served.changes() == {}


def test_a_bounded_number_of_tenants_is_kept() -> None:
    served = ServedUnits(max_tenants=2)
    for tenant in "abac":
        served.add(tenant, 1.0)
    assert served.changes() == {"a": 2.0, "c": 1.0}


def test_growth_that_several_sessions_report_is_charged_once() -> None:
    elsewhere = ServiceElsewhere()
    assert elsewhere.growth(1, 100.0) == 0.0, "where the session begins"
    assert elsewhere.growth(1, 130.0) == 30.0
    assert elsewhere.growth(1, 130.0) == 0.0, "repeated"
    assert elsewhere.growth(2, 7.0) == 0.0, "another client that began later"
    assert elsewhere.growth(2, 17.0) == 10.0
    assert elsewhere.growth(1, 140.0) == 0.0, "the same ten units"
    assert elsewhere.growth(1, 120.0) == 0.0, "an old report"
    assert elsewhere.growth(1, 145.0) == 5.0


def test_after_a_pause_nothing_is_charged_for_it() -> None:
    elsewhere = ServiceElsewhere()
    elsewhere.growth(1, 0.0)
    elsewhere.reset()
    assert elsewhere.growth(1, 1e6) == 0.0
    assert elsewhere.growth(1, 1e6 + 1) == 1.0


def shares(demand: dict[str, tuple[float, list[int]]], *, reported: bool) -> dict[str, float]:
    """Return each tenant's part of all tokens of three engines. The demand is a weight, and the engines that it floods.

    Reports arrive 25 steps late.
    """
    engines = [Stepping(seats=4, blocks=4000) for _ in range(3)]
    open_: dict[tuple[int, str], list[Sequence]] = {}
    reports: list[list[dict[str, float]]] = []
    totals: list[dict[str, float]] = [{}, {}, {}]
    for step in range(1200):
        reports.append([engine.scheduler.served() for engine in engines])
        if reported and step >= 25:
            for total, report in zip(totals, reports[step - 25], strict=True):
                total.update(report)
        for tenant, (weight, flooded) in demand.items():
            for number in flooded:
                elsewhere = sum(totals[other].get(tenant, 0.0) for other in range(3) if other != number)
                sequences = open_.setdefault((number, tenant), [])
                sequences[:] = [each for each in sequences if each not in engines[number].finished]
                while len(sequences) < 8:
                    sequences += engines[number].submit(tenant, 8, 8, weight=weight, elsewhere=elsewhere)
        for engine in engines:
            engine.step()
    tokens = {tenant: sum(engine.produced.get(tenant, 0) for engine in engines) for tenant in demand}
    return {tenant: number / sum(tokens.values()) for tenant, number in tokens.items()}


@pytest.mark.parametrize(
    ("demand", "fair"),
    [
        ({"flood": (1.0, [0, 1, 2]), "quiet": (1.0, [0])}, 1 / 3),  # all of its engine
        ({"flood": (1.0, [0, 1, 2]), "quiet": (1.5, [0, 1])}, 3 / 5),
        ({"flood": (1.0, [0, 1, 2]), "quiet": (1.0, [0, 1])}, 1 / 2),
        ({"flood": (3.0, [0, 1, 2]), "quiet": (1.0, [0])}, 1 / 4),
    ],
)
def test_shares_over_three_engines_follow_the_weights(demand: dict[str, tuple[float, list[int]]], fair: float) -> None:
    assert shares(demand, reported=True)["quiet"] == pytest.approx(fair, rel=0.05)


def test_without_reports_a_flood_of_three_engines_gets_three_shares() -> None:
    """The other tests would pass without effect if this one did not hold."""
    demand: dict[str, tuple[float, list[int]]] = {"flood": (1.0, [0, 1, 2]), "quiet": (1.0, [0])}
    assert shares(demand, reported=False)["quiet"] == pytest.approx(1 / 6, rel=0.1)


def report(**units: float) -> list[pb.TenantService]:
    return [pb.TenantService(tenant_id=tenant_id, units=each) for tenant_id, each in units.items()]


def test_growth_since_the_first_report_counts() -> None:
    served = ServedTotals()
    served.begin_session()
    served.add_report(report(a=500.0))
    assert served.totals == {"a": 0.0}
    served.add_report(report(a=530.0, b=3.0))
    served.add_report(report(a=530.0, b=5.0))
    assert served.totals == {"a": 30.0, "b": 2.0}


def test_totals_never_decrease() -> None:
    served = ServedTotals()
    served.begin_session()
    served.add_report(report(a=10.0))
    served.add_report(report(a=30.0))
    served.begin_session()  # the engine restarted and counts from zero
    served.add_report(report(a=4.0))
    served.add_report(report(a=5.0))
    served.add_report(report(a=2.0))  # it had forgotten the tenant
    served.add_report(report(a=3.0))
    assert served.totals == {"a": 22.0}
