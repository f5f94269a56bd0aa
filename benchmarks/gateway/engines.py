"""Tokens per second of one gateway worker with one engine and with three.

    python -m benchmarks.gateway.engines

The engines are processes that speak the engine's protocol and sleep in each step (`engine.py`): 8 requests at a time,
50 tokens a second for each. All requests are for one adapter, whose replica set grows with its demand. The worker
authenticates, applies limits (Redis), chooses an engine, detokenizes and meters. One engine and three take turns.
"""

import argparse
import statistics
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.gateway.load import Request, load
from benchmarks.gateway.worker import MESSAGES, running_worker
from benchmarks.lib.report import write

NAME = "gateway_engines"
BATCH, RATE = 8, 50.0
TOKENS = 50  # of each response: a second of work
CONNECTIONS = 16  # for each engine: as many wait as run
ENGINES = (1, 3)
WARM_UP_SECONDS = 12.0  # in which the set grows, and the bytes arrive

console = Console(stderr=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0, help="duration of each turn")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each")
    arguments = parser.parse_args()
    turns = [(engines, measure(engines, arguments.seconds)) for _ in range(arguments.rounds) for engines in ENGINES]
    rates = {engines: [rate for each, rate in turns if each == engines] for engines in ENGINES}
    figures = summary(rates)
    show(figures)
    write(NAME, figures)


def measure(engines: int, seconds: float) -> float:
    """Return the tokens per second through a worker with so many engines."""
    with tempfile.TemporaryDirectory(prefix="gw") as folder:
        options = ("--tokens-per-second", str(RATE), "--batch", str(BATCH))
        with running_worker(Path(folder), *options, engines=engines) as worker:
            body: dict[str, Any] = {"model": "ours", "messages": MESSAGES, "max_tokens": TOKENS}
            headers = {"Authorization": f"Bearer {worker.key}"}
            request = Request(worker.port, "/v1/chat/completions", headers, body)
            load(request, connections=CONNECTIONS * engines, seconds=WARM_UP_SECONDS)
            return load(request, connections=CONNECTIONS * engines, seconds=seconds)["per_second"] * TOKENS


def summary(rates: dict[int, list[float]]) -> dict[str, Any]:
    """Return medians, what an engine could do at most, and the ratio."""
    medians = {engines: statistics.median(each) for engines, each in rates.items()}
    one, three = (medians[engines] for engines in ENGINES)
    return {
        "most_tokens_per_second_of_an_engine": BATCH * RATE,
        "tokens_per_second": {str(engines): round(each, 1) for engines, each in medians.items()},
        "three_over_one": round(three / one, 2),
    }


def show(figures: dict[str, Any]) -> None:
    table = Table("engines", "tokens/s", title="one gateway worker")
    for engines, rate in figures["tokens_per_second"].items():
        table.add_row(engines, str(rate))
    console.print(table)
    console.print(f"three over one: {figures['three_over_one']}")


if __name__ == "__main__":
    main()
