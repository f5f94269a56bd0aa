"""The sums of engines' reports of service."""

from loragate.engine.client.served import ServedTotals
from loragate.v1 import engine_pb2 as pb


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
