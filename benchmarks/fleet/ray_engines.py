"""The latency of an engine that Ray Serve starts, beside that of one that is started by hand.

    python -m benchmarks.fleet.ray_engines --ray-python RAY/bin/python   # an environment with ray[serve] and loragate

Two gateways have an engine each: the same model, the same settings, one thread. Requests go to both by turns, so that
both of a pair meet the same machine, and Ray's own processes run beside both. Measured are the seconds to the first
token and to the end of a streamed response. A ratio is the median over all pairs of what Ray's took of the other's.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console
from rich.table import Table

from benchmarks.gateway.worker import free_port, until_ready
from benchmarks.lib.report import write
from loragate.demo.assets import MODEL, shipped_assets

NAME = "ray_engines"
TARGET = 1.15
TOKENS = 32
TOGETHER = (1, 8)  # requests at a time
READY_SECONDS = 240
ADMIN_KEY = "an-admin-key-for-benchmarks-only"

console = Console(stderr=True)


@dataclass(frozen=True)
class Seconds:
    """What a request took."""

    first_token: float
    response: float


@dataclass(frozen=True)
class Gateway:
    """A gateway, and a tenant's client of it."""

    settings: Mapping[str, str]
    client: httpx.Client

    def wait_for_engine(self) -> None:
        """Return once an engine has answered a request."""
        deadline = time.monotonic() + READY_SECONDS
        while not self.client.post("/v1/completions", json=_body(stream=False)).is_success:
            if time.monotonic() > deadline:
                raise SystemExit(f"no engine answered within {READY_SECONDS} s")
            time.sleep(0.5)

    def measure(self, _: int = 0) -> Seconds:
        """Send a request; return what it took."""
        started = time.perf_counter()
        first = None
        with self.client.stream("POST", "/v1/completions", json=_body(stream=True)) as response:
            response.raise_for_status()
            for line in response.iter_lines():
                if first is None and line.startswith("data: {"):
                    first = time.perf_counter() - started
        if first is None:
            raise SystemExit("a response had no token")
        return Seconds(first, time.perf_counter() - started)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ray-python", type=Path, required=True, help="the interpreter of an environment with Ray")
    parser.add_argument("--pairs", type=int, default=100, help="pairs for each number of requests at a time")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ray") as folder, ExitStack() as stack:
        by_hand = stack.enter_context(_gateway(Path(folder) / "by_hand"))
        by_ray = stack.enter_context(_gateway(Path(folder) / "ray"))
        stack.enter_context(_engine(by_hand))
        stack.enter_context(_ray(by_ray, arguments.ray_python.parent))
        for gateway in (by_hand, by_ray):
            gateway.wait_for_engine()
            for _ in range(20):
                gateway.measure()
        figures = {f"{count}_at_a_time": _compare(by_hand, by_ray, count, arguments.pairs) for count in TOGETHER}
    _show(figures)
    write(NAME, {"target_ratio": TARGET, "tokens": TOKENS, **figures})


def _compare(by_hand: Gateway, by_ray: Gateway, count: int, pairs: int) -> dict[str, Any]:
    """Return the medians of both in milliseconds, and the ratios of pairs."""
    found: dict[str, list[Seconds]] = {"by_hand": [], "ray": []}
    turns = [("by_hand", by_hand), ("ray", by_ray)]
    with ThreadPoolExecutor(count) as threads:
        for _ in range(pairs):
            turns.reverse()
            for name, gateway in turns:
                found[name] += threads.map(gateway.measure, range(count))
    figures: dict[str, Any] = {}
    for what in ("first_token", "response"):
        hand, ray = ([getattr(each, what) for each in found[name]] for name in ("by_hand", "ray"))
        figures[what] = {
            "by_hand_ms": round(1000 * statistics.median(hand), 2),
            "ray_ms": round(1000 * statistics.median(ray), 2),
            "ratio": round(statistics.median(y / x for x, y in zip(hand, ray, strict=True)), 3),
        }
    return figures


@contextmanager
def _gateway(folder: Path) -> Iterator[Gateway]:
    """Run a gateway that waits for engines to register; add a tenant."""
    folder.mkdir()
    port, grpc_port = free_port(), free_port()
    settings = {
        "LORAGATE_DATA_DIR": str(folder / "data"),
        "LORAGATE_ADMIN_KEY": ADMIN_KEY,
        "LORAGATE_MODEL": str(shipped_assets().model_dir),
        "LORAGATE_ENGINE_TARGET": "none",
        "LORAGATE_ENGINE__THREADS": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    command = [*_loragate(), "gateway", "--port", str(port), "--grpc-port", str(grpc_port)]
    base_url = f"http://127.0.0.1:{port}"
    with _process(command, settings, folder):
        until_ready(f"{base_url}/healthz")
        with httpx.Client(base_url=base_url, headers={"authorization": f"Bearer {ADMIN_KEY}"}) as admin:
            tenant = admin.post("/admin/v1/tenants", json={"name": "benchmark"}).raise_for_status().json()
            created = admin.post(f"/admin/v1/tenants/{tenant['id']}/keys", json={"name": "benchmark"})
            key = created.raise_for_status().json()["secret"]
        with httpx.Client(base_url=base_url, headers={"authorization": f"Bearer {key}"}, timeout=60) as client:
            yield Gateway(settings, client)


@contextmanager
def _engine(gateway: Gateway) -> Iterator[None]:
    """Run an engine that registers itself."""
    target = f"127.0.0.1:{free_port()}"
    cache = Path(gateway.settings["LORAGATE_DATA_DIR"]) / "engine-cache" / "by-hand"
    own = {
        "LORAGATE_ENGINE__LISTEN": target,
        "LORAGATE_ENGINE__ADVERTISE": target,
        "LORAGATE_ENGINE__ID": "by-hand",
        "LORAGATE_ENGINE__CACHE_DIR": str(cache),
    }
    with _process([*_loragate(), "engine"], {**gateway.settings, **own}, cache.parents[2]):
        yield


@contextmanager
def _ray(gateway: Gateway, tools: Path) -> Iterator[None]:
    """Run a Ray cluster of this machine, whose Serve starts an engine."""
    environment, folder = _environment(gateway.settings), Path(gateway.settings["LORAGATE_DATA_DIR"]).parent
    start = [
        str(tools / "ray"),
        "start",
        "--head",
        "--num-cpus=2",
        "--include-dashboard=false",
        "--disable-usage-stats",
    ]
    run = [str(tools / "serve"), "run", "--non-blocking", "loragate.deploy.ray:app"]
    with (folder / "ray.log").open("wb") as log:
        try:
            for command in (start, [*run, f"model={gateway.settings['LORAGATE_MODEL']}"]):
                subprocess.run(
                    command, env=environment, cwd=folder, stdout=log, stderr=log, check=True, timeout=READY_SECONDS
                )
            yield
        finally:
            subprocess.run(
                [str(tools / "ray"), "stop", "--force"], env=environment, stdout=log, stderr=log, check=False
            )


@contextmanager
def _process(command: list[str], settings: Mapping[str, str], folder: Path) -> Iterator[None]:
    with (folder / f"{command[-1]}.log").open("wb") as log:
        child = subprocess.Popen(command, env=_environment(settings), stdout=log, stderr=log)
        try:
            yield
        finally:
            child.terminate()
            child.wait(60)


def _loragate() -> list[str]:
    return [sys.executable, "-m", "loragate.cli.main"]


def _environment(settings: Mapping[str, str]) -> dict[str, str]:
    """Return this process's environment with these settings of loragate, and no others."""
    return {name: value for name, value in os.environ.items() if not name.startswith("LORAGATE_")} | dict(settings)


def _body(*, stream: bool) -> dict[str, Any]:
    question = {"model": MODEL, "prompt": "What is the capital of France?"}
    return question | {"max_tokens": TOKENS, "ignore_eos": True, "temperature": 0, "stream": stream}


def _show(figures: Mapping[str, Any]) -> None:
    table = Table("requests", "", "by hand, ms", "Ray, ms", "ratio", title="engines started by hand and by Ray")
    for count, kinds in figures.items():
        for what, each in kinds.items():
            table.add_row(count, what, str(each["by_hand_ms"]), str(each["ray_ms"]), str(each["ratio"]))
    console.print(table)


if __name__ == "__main__":
    main()
