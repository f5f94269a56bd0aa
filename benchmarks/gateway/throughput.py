"""Requests per second of one gateway worker, compared with LiteLLM's proxy and with a bare FastAPI route.

    LITELLM_PYTHON=/path/to/venv/bin/python python -m benchmarks.gateway.throughput

Our worker authenticates, applies limits (Redis), resolves an adapter, renders, tokenizes, calls an engine over gRPC,
detokenizes and meters; the engine has no model (`engine.py`) and responds at once. LiteLLM's proxy checks its master
key and returns its mock response, without limits or metering. The bare route parses the same body into a pydantic model
and returns a fixed text. Each system has one worker, and they take turns. The server has its own core; the load
generator, Redis and the engine share the others.

Latency is measured under an open load. Our worker and the bare route each run at half of their maximum throughput, so
that both are equally busy; the bare route also runs at our rate, where it is mostly idle. Meanwhile a busy loop of idle
priority keeps each core awake, because waking up a virtual machine's core takes longer than a request.
"""

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

from benchmarks.gateway.load import Request, load
from benchmarks.gateway.worker import MESSAGES, cores, free_port, process, running_worker, until_ready
from benchmarks.lib.report import write

CONNECTIONS = 16
OPEN_CONNECTIONS = 256
RESPONSE_TOKENS = 8
SAME_RATE = "bare_at_our_rate"

console = Console(stderr=True)


@dataclass(frozen=True)
class System:
    """A running server, and the request sent to it."""

    request: Request
    server: psutil.Process

    def measure(self, **options: Any) -> dict[str, float]:
        """Return the figures under load, with the server's CPU time per request."""
        before = self._processor_seconds()
        figures = load(self.request, **options)
        spent = self._processor_seconds() - before
        return figures | {"cpu_ms": 1e3 * spent / (figures["per_second"] * figures["seconds"])}

    def _processor_seconds(self) -> float:
        return sum(sum(each.cpu_times()[:2]) for each in (self.server, *self.server.children(recursive=True)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=6.0, help="duration of each turn")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each system")
    parser.add_argument(
        "--only",
        choices=("loragate", "bare", "litellm"),
        action="append",
        help="measure this system; may repeat",
    )
    arguments = parser.parse_args()
    wanted = arguments.only or ["loragate", "bare", *(["litellm"] if litellm_python() else [])]
    if "litellm" not in wanted:
        console.print("without LiteLLM: set LITELLM_PYTHON to a Python that has litellm\\[proxy]")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gw")))
        systems = {name: stack.enter_context(SYSTEMS[name](folder)) for name in wanted}
        figures = measure(systems, arguments.seconds, arguments.rounds)
    show(figures)
    if not arguments.only:
        write("gateway", figures)


def measure(systems: dict[str, System], seconds: float, rounds: int) -> dict[str, Any]:
    """Measure the systems in turns, so that other load on the machine affects all of them alike."""
    for system in systems.values():
        load(system.request, connections=CONNECTIONS, seconds=2)
    closed: dict[str, list[dict[str, float]]] = {name: [] for name in systems}
    for turn in range(rounds):
        for name, system in systems.items():
            console.print(f"round {turn + 1}: {name}, {CONNECTIONS} connections")
            closed[name].append(system.measure(connections=CONNECTIONS, seconds=seconds))
    figures: dict[str, Any] = {"connections": CONNECTIONS, "closed": {}, "at_half_of_maximum": {}}
    for name, runs in closed.items():
        figures["closed"][name] = medians(runs)
    if not {"loragate", "bare"} <= systems.keys():
        return figures
    half = {name: figures["closed"][name]["per_second"] / 2 for name in ("loragate", "bare")}
    loads = {name: (systems[name], rate) for name, rate in half.items()}
    loads[SAME_RATE] = systems["bare"], half["loragate"]
    at_half: dict[str, list[dict[str, float]]] = {name: [] for name in loads}
    with awake_cores():
        for turn in range(rounds):
            for name, (system, rate) in loads.items():
                console.print(f"round {turn + 1}: {name}, {rate:.0f} requests per second")
                at_half[name].append(system.measure(connections=OPEN_CONNECTIONS, seconds=seconds, rate=rate))
    figures["at_half_of_maximum"] = {name: medians(runs) for name, runs in at_half.items()}
    return figures | ratios(figures)


@contextmanager
def awake_cores() -> Iterator[None]:
    """Keep all cores from halting within the block, with a busy loop of idle priority on each."""
    spin = "import os\nos.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))\nwhile True: pass"
    with ExitStack() as stack:
        for core in cores():
            spinner = stack.enter_context(process([sys.executable, "-c", spin]))
            spinner.cpu_affinity([core])
        yield


def medians(runs: Sequence[dict[str, float]]) -> dict[str, float]:
    return {key: round(statistics.median(run[key] for run in runs), 3) for key in runs[0]}


def ratios(figures: dict[str, Any]) -> dict[str, Any]:
    closed, half = figures["closed"], figures["at_half_of_maximum"]
    found = {}
    if "litellm" in closed:
        found["times_litellm"] = closed["loragate"]["per_second"] / closed["litellm"]["per_second"]
    for name in half.keys() - {"loragate"}:
        for point in ("p50_ms", "p99_ms"):
            found[f"{point[:3]}_to_{name}"] = half["loragate"][point] / half[name][point]
    return {"ratios": {name: round(value, 2) for name, value in sorted(found.items())}}


def show(figures: dict[str, Any]) -> None:
    table = Table("system", "load", "requests/s", "p50 ms", "p99 ms", "CPU ms per request")
    for load_name in ("closed", "at_half_of_maximum"):
        for name, row in figures[load_name].items():
            cells = (f"{row['per_second']:.0f}", f"{row['p50_ms']:.2f}", f"{row['p99_ms']:.2f}", f"{row['cpu_ms']:.3f}")
            table.add_row(name, load_name.replace("_", " "), *cells)
    console.print(table)
    console.print(figures.get("ratios", {}))


@contextmanager
def loragate(folder: Path) -> Iterator[System]:
    """Run a gateway worker with Redis, limits of every kind and an adapter."""
    with running_worker(folder) as worker:
        yield System(chat_request(worker.port, worker.key, "ours"), worker.process)


@contextmanager
def bare(folder: Path) -> Iterator[System]:
    """Run the bare FastAPI route."""
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "benchmarks.gateway.bare:app", "--port", str(port)]
    with process([*command, "--no-access-log", "--log-level", "warning"], own_core=True) as server:
        until_ready(f"http://127.0.0.1:{port}/healthz")
        yield System(chat_request(port, "unused", "bare"), server)


@contextmanager
def litellm(folder: Path) -> Iterator[System]:
    """Run LiteLLM's proxy with a master key and a mock response as long as ours."""
    python = litellm_python()
    assert python is not None
    config = folder / "litellm.yaml"
    config.write_text(
        "model_list:\n  - model_name: mock\n    litellm_params:\n      model: openai/mock\n      api_key: none\n"
        f"      mock_response: '{' fox' * RESPONSE_TOKENS}'\n"
        "general_settings:\n  master_key: sk-benchmark\n"
        "litellm_settings:\n  telemetry: false\n"
    )
    port = free_port()
    command = [str(python.with_name("litellm")), "--config", str(config), "--port", str(port), "--num_workers", "1"]
    with process(command, {"LITELLM_LOG": "ERROR", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}, own_core=True) as server:
        until_ready(f"http://127.0.0.1:{port}/health/liveliness")
        yield System(chat_request(port, "sk-benchmark", "mock"), server)


SYSTEMS = {"loragate": loragate, "bare": bare, "litellm": litellm}


def litellm_python() -> Path | None:
    python = os.environ.get("LITELLM_PYTHON")
    return Path(python) if python else None


def chat_request(port: int, key: str, model: str) -> Request:
    body = {"model": model, "messages": MESSAGES, "max_tokens": RESPONSE_TOKENS, "temperature": 0}
    return Request(port, "/v1/chat/completions", {"authorization": f"Bearer {key}"}, body)


if __name__ == "__main__":
    main()
