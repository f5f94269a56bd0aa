"""Where adapters should live over many engines: policies of placement on a virtual clock.

Placement, scheduler and adapter pool are the code that serves; steps, reads and copies take the seconds of `Costs`.
Nothing sleeps, so that the figures do not depend on the machine.

    python -m benchmarks.fleet                    # all scenarios; an hour on two cores
    python -m benchmarks.fleet --only zipf death  # some
    python -m benchmarks.fleet.pictures           # draw `docs/pictures/fleet-*.svg` from the results
"""

import argparse
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.fleet.fairness import quiet_beside_a_flood, shares_by_weight
from benchmarks.fleet.policies import (
    AtRandom,
    LeastLoaded,
    Policy,
    PreferHolder,
    Rendezvous,
    ReplicaSets,
    belady_loads,
    best_static_loads,
    sets_of,
)
from benchmarks.fleet.simulation import Fleet, Simulation, moved
from benchmarks.fleet.workload import Workload
from benchmarks.lib.report import load_figures, write

NAME = "fleet"
ENGINES, ADAPTERS, SKEW, REQUESTS = 3, 300, 1.0, 8000
RATE = 8.0  # requests a second for each engine: about 60 % of what it can do
OVERLOAD = 2.0  # times RATE: more than engines can do, so that what they complete is their best
POLICIES: dict[str, tuple[Callable[[], Policy], bool]] = {  # with whether engines evict the least recently used
    "at random": (AtRandom, True),
    "least loaded": (LeastLoaded, True),
    "prefer a holder, spill by load": (PreferHolder, True),
    "rendezvous": (Rendezvous, True),
    "least loaded, uses counted": (LeastLoaded, False),
    "prefer a holder, uses counted": (PreferHolder, False),
    "rendezvous, uses counted": (Rendezvous, False),
    "loragate": (ReplicaSets, False),
}
SCALE = (1, 2, 3, 8, 32, 64, 256)
SCALE_SECONDS = 30  # of requests, and more on few engines
CATALOGUES = (10, 100, 1000, 10_000, 100_000)  # adapters
CATALOGUE_ENGINES = 8
SCALED_POLICIES = ("least loaded", "prefer a holder, spill by load", "loragate")

Case = tuple[str, Fleet, Workload, int, str]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", nargs="+", choices=list(SCENARIOS), help="scenarios to run; the others keep their figures"
    )
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    arguments = parser.parse_args()
    figures = load_figures(NAME)
    for name in arguments.only or SCENARIOS:
        with ProcessPoolExecutor(arguments.jobs) as pool:
            figures[name] = SCENARIOS[name](lambda cases, pool=pool: list(pool.map(run, cases)))
        show(name, figures[name])
        write(NAME, figures)


def run(case: Case) -> dict[str, Any]:
    """Simulate one case in this process."""
    name, fleet, workload, requests, policy = case
    new, least_recent = POLICIES[policy]
    figures = Simulation(replace(fleet, evict_least_recent=least_recent), workload, new()).run(requests)
    return {"case": name, "policy": policy, **figures}


Runner = Callable[[list[Case]], list[dict[str, Any]]]


def zipf(simulate: Runner) -> dict[str, Any]:
    """Compare all policies at three skews, and at the middle one with bursts."""
    workloads = {f"s = {skew}": Workload(ADAPTERS, skew, RATE * ENGINES) for skew in (0.6, SKEW, 1.5)}
    workloads["bursts"] = Workload(ADAPTERS, SKEW, RATE * ENGINES, bursts=0.3)
    cases = [(n, Fleet(ENGINES), workload, REQUESTS, p) for n, workload in workloads.items() for p in POLICIES]
    return {"rows": simulate(cases), "bounds": {n: _bounds(workload) for n, workload in workloads.items()}}


def _bounds(workload: Workload) -> dict[str, float]:
    """Return the loads a request with the best fixed assignment, and with one that knows the future."""
    ranks = [arrival.rank for arrival in workload.arrivals(REQUESTS)][REQUESTS // 4 :]
    slots = ENGINES * Fleet(ENGINES).slots
    return {"best static": round(best_static_loads(ranks, slots), 3), "belady": round(belady_loads(ranks, slots), 3)}


def death(simulate: Runner) -> dict[str, Any]:
    """Kill an engine of four in the middle."""
    middle = REQUESTS / (RATE * 3) / 2
    fleet = Fleet(4, killed_at=middle)
    cases = [("one of four dies", fleet, Workload(ADAPTERS, SKEW, RATE * 3), REQUESTS, p) for p in POLICIES]
    return {"rows": simulate(cases)}


def scale(simulate: Runner) -> dict[str, Any]:
    """Add engines, adapters and requests together; the rates are RATE for each engine, and an overload."""
    cases = []
    for engines in SCALE:
        adapters = 100 * engines
        requests = max(3000, int(SCALE_SECONDS * RATE * engines))
        for name, factor in (("rate", 1.0), ("overload", OVERLOAD)):
            workload = Workload(adapters, SKEW, RATE * engines * factor)
            cases += [(f"{name} {engines}", Fleet(engines), workload, requests, p) for p in SCALED_POLICIES]
    return {"rows": simulate(cases)}


def catalogues(simulate: Runner) -> dict[str, Any]:
    """Add adapters to the same engines."""
    rate = RATE * CATALOGUE_ENGINES
    workloads = [(f"adapters {adapters}", Workload(adapters, SKEW, rate)) for adapters in CATALOGUES]
    fleet = Fleet(CATALOGUE_ENGINES)
    return {"rows": simulate([(n, fleet, workload, REQUESTS, p) for n, workload in workloads for p in SCALED_POLICIES])}


def moves(simulate: Runner) -> dict[str, Any]:
    """Add an engine and remove it again: from 2 to 3 for several namings of the adapters, and to larger fleets."""
    rows = [{"case": f"naming {seed}", **_moves(2, ADAPTERS, seed)} for seed in range(8)]
    mean = {key: round(sum(row[key] for row in rows) / len(rows), 3) for key in ("joins", "leaves", "kept")}
    larger = [{"case": f"engines {engines}", **_moves(engines, 100 * engines)} for engines in SCALE]
    return {"rows": [{"case": "mean of 8 namings", **mean}, *rows, *larger]}


def _moves(engines: int, adapters: int, seed: int = 0) -> dict[str, float]:
    """Return the part of the pairs that moves when one joins `engines` and when it leaves again, and the part of the
    first ones that is there in the end."""
    workload = Workload(adapters, SKEW, 1.0, seed=seed)
    shares = {workload.key(rank): float(share) for rank, share in enumerate(workload.probabilities())}
    before, with_it, after = (
        sets_of(shares, {f"engine-{i}": 16.0 for i in range(count)}) for count in (engines, engines + 1, engines)
    )
    return {
        "joins": round(moved(before, with_it), 3),
        "leaves": round(moved(with_it, after), 3),
        "kept": round(1 - moved(before, after), 3),
    }


def fairness(simulate: Runner) -> dict[str, Any]:
    """Flood one engine, and three with three times as much; and let tenants of different weights flood three."""
    return {"rows": quiet_beside_a_flood() + shares_by_weight()}


SCENARIOS: dict[str, Callable[[Runner], dict[str, Any]]] = {
    "zipf": zipf,
    "death": death,
    "moves": moves,
    "scale": scale,
    "catalogues": catalogues,
    "fairness": fairness,
}


def show(name: str, figures: dict[str, Any]) -> None:
    table = Table(*figures["rows"][0], title=name)
    for row in figures["rows"]:
        table.add_row(*map(str, row.values()))
    Console(width=180).print(table)


if __name__ == "__main__":
    main()
