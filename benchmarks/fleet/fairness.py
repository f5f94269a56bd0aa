"""Tenants that flood several engines, with and without the reports of what the others serve."""

from collections import Counter
from dataclasses import dataclass, replace
from itertools import count
from random import Random
from typing import Any

import numpy as np

from benchmarks.fleet.clock import Clock
from benchmarks.fleet.engine import Served, SimulatedEngine
from benchmarks.fleet.workload import Arrival
from loragate.engine.fleet.placement import Candidate, choose
from loragate.engine.sequence.request import AdapterKey
from loragate.engine.served_units import ServedTotals
from loragate.v1 import engine_pb2 as pb

SECONDS = 600.0
WARM_UP = 60.0
REPORT_SECONDS = 0.25  # as engines report
FLOOD = 64  # calls that are always open, for each engine
QUIET_RATE = 1.0  # requests a second


@dataclass(frozen=True)
class Tenant:
    """A tenant that always has `calls` open, or sends `rate` requests a second, for an adapter on these engines."""

    name: str
    weight: float = 1.0
    calls: int = 0
    rate: float = 0.0
    engines: tuple[int, ...] = (0, 1, 2)


class SharedEngines:
    """Engines, and a gateway that places requests by load and passes on what engines report."""

    def __init__(self, engines: int, tenants: list[Tenant], *, reports: bool) -> None:
        self.clock = Clock()
        self.served: list[Served] = []
        self.tokens: Counter[str] = Counter()  # after the warm-up
        self._tenants = {each.name: each for each in tenants}
        self._engines = [SimulatedEngine(f"engine-{n}", self.clock, self._ended) for n in range(engines)]
        self._totals = [ServedTotals() for _ in range(engines)]
        self._reports = reports
        self._numbers = count()
        self._random = Random(1)

    def run(self) -> None:
        """Run for SECONDS."""
        for tenant in self._tenants.values():
            for _ in range(tenant.calls):
                self._send(tenant)
            if tenant.rate:
                self._send_at_rate(tenant)
        self._report()
        self.clock.run()

    def waits(self, tenant: str) -> list[float]:
        """Return the times to the first token of a tenant's requests after the warm-up, in seconds."""
        served = (each for each in self.served if each.arrival.key.tenant_id == tenant and each.arrival.at >= WARM_UP)
        return [each.first_token - each.arrival.at for each in served]

    def _send(self, tenant: Tenant) -> None:
        new_tokens = self._random.randint(8, 24)
        key = AdapterKey(tenant.name, "only")
        number = next(self._numbers)
        arrival = Arrival(number, self.clock.now, 0, key, 64, new_tokens, tenant.weight)
        engines = [each for number, each in enumerate(self._engines) if number in tenant.engines]
        candidates = [Candidate(each.name, 0.0, len(each.open)) for each in engines]
        chosen = choose(candidates, f"prompt {number}")
        for engine, own in zip(self._engines, self._totals, strict=True):
            if engine.name == chosen:
                elsewhere = sum(each.totals.get(tenant.name, 0.0) for each in self._totals if each is not own)
                engine.submit(arrival, elsewhere)

    def _send_at_rate(self, tenant: Tenant) -> None:
        if self.clock.now < SECONDS:
            if self.clock.now:
                self._send(tenant)
            self.clock.after(self._random.expovariate(tenant.rate), lambda: self._send_at_rate(tenant))

    def _ended(self, served: Served) -> None:
        self.served.append(served)
        tenant = self._tenants[served.arrival.key.tenant_id]
        if WARM_UP <= self.clock.now < SECONDS:
            self.tokens[tenant.name] += served.arrival.new_tokens
        if tenant.calls and self.clock.now < SECONDS:
            self._send(tenant)

    def _report(self) -> None:
        for engine, totals in zip(self._engines, self._totals, strict=True):
            served = engine.scheduler.served()
            if self._reports:
                totals.add_report(pb.TenantService(tenant_id=each, units=units) for each, units in served.items())
        if self.clock.now < SECONDS:
            self.clock.after(REPORT_SECONDS, self._report)


def quiet_beside_a_flood() -> list[dict[str, Any]]:
    """Compare a quiet tenant's waits on one flooded engine and on three."""
    quiet = Tenant("quiet", rate=QUIET_RATE)
    rows = []
    for engines, reports in ((1, True), (3, True), (3, False)):
        flood = Tenant("flood", calls=FLOOD * engines)
        shared = SharedEngines(engines, [flood, replace(quiet, rate=QUIET_RATE * engines)], reports=reports)
        shared.run()
        rows.append(_row(f"a flood over {engines}", reports, _percentiles(shared.waits("quiet"))))
    return rows


def shares_by_weight() -> list[dict[str, Any]]:
    """Compare tokens by weight where tenants use different engines of three, and all want more than their shares."""
    tenants = [
        Tenant("a", 2.0, calls=200),
        Tenant("b", 1.0, calls=90, engines=(0, 1)),
        Tenant("c", 1.0, calls=60, engines=(2,)),
    ]
    rows = []
    for reports in (True, False):
        shared = SharedEngines(3, tenants, reports=reports)
        shared.run()
        total, weights = sum(shared.tokens.values()), sum(each.weight for each in tenants)
        shares = {each.name: shared.tokens[each.name] / total * weights / each.weight for each in tenants}
        rows.append(
            _row("weights 2, 1, 1", reports, {f"share_{name}": round(each, 3) for name, each in shares.items()})
        )
    return rows


def _row(case: str, reports: bool, figures: dict[str, float]) -> dict[str, Any]:
    empty = dict.fromkeys(("first_token_ms_p50", "first_token_ms_p99", "share_a", "share_b", "share_c"), "")
    return {"case": case, "reports": reports} | empty | figures


def _percentiles(waits: list[float]) -> dict[str, float]:
    quantiles = {"first_token_ms_p50": 0.5, "first_token_ms_p99": 0.99}
    return {name: round(float(np.quantile(waits, each)) * 1000, 1) for name, each in quantiles.items()}
