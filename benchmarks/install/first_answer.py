"""The time to the first streamed answer of an adapter: from a fresh clone, at the second start, and from the wheel.

Each run clones the checkout's last commit into a new folder, with empty caches of pip and uv, runs `make serve` there,
and asks the demo's first adapter. Then it starts the server a second time. The wheel is installed with the caches of
the last run into an empty environment, where `loragate demo` answers. Run it on a quiet machine:

    python -m benchmarks.install.first_answer --keep
"""

import argparse
import json
import os
import queue
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from benchmarks.lib.report import write

ROOT = Path(__file__).parents[2]
START_SECONDS = 1800
QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
# The first line of each stage, in the order in which they come.
STAGES = {
    "==> creating": "environment",
    "==> installer": "installer",
    "==> packages": "packages",
    "    installed": "loragate",
    "==> starting": "start",
    "loragate ready": "answer",
}


class Stopwatch:
    """Seconds and bytes received from the network, by stage."""

    def __init__(self) -> None:
        self.stages: dict[str, dict[str, float]] = {}
        self._stage = ""
        self._began = self._total_began = time.monotonic()
        self._received = received_bytes()

    def begin(self, stage: str) -> None:
        """End the stage before and begin another."""
        now, received = time.monotonic(), received_bytes()
        if self._stage:
            seconds, size = round(now - self._began, 2), received - self._received
            self.stages[self._stage] = {"seconds": seconds, "received_bytes": size}
        self._stage, self._began, self._received = stage, now, received

    def end(self) -> dict[str, Any]:
        """End the last stage and return all of them with their sum."""
        self.begin("")
        return {"seconds": round(time.monotonic() - self._total_began, 2), "stages": self.stages}


def received_bytes() -> int:
    """Return the bytes that all interfaces but the loopback have received."""
    lines = Path("/proc/net/dev").read_text().splitlines()[2:]
    found = {name.strip(): int(counts.split()[0]) for name, _, counts in (line.partition(":") for line in lines)}
    return sum(count for name, count in found.items() if name != "lo")


def fresh_environment(caches: Path) -> dict[str, str]:
    """Return this environment with empty caches, free ports, and without what a developer has set."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("LORAGATE_") and name not in ("PYTHONDONTWRITEBYTECODE", "VIRTUAL_ENV", "MAKEFLAGS")
    }
    ports = dict(zip(("LORAGATE_PORT", "LORAGATE_GRPC_PORT", "LORAGATE_PANEL_PORT"), free_ports(3), strict=True))
    return environment | ports | {"UV_CACHE_DIR": str(caches / "uv"), "PIP_CACHE_DIR": str(caches / "pip")}


def free_ports(count: int) -> list[str]:
    """Return ports that no program listens on at the moment."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [str(each.getsockname()[1]) for each in sockets]
    for each in sockets:
        each.close()
    return ports


@contextmanager
def running(command: list[str], folder: Path, environment: Mapping[str, str]) -> Iterator[Iterator[str]]:
    """Run a server and yield its lines of output; interrupt it at the end, as Ctrl-C does."""
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=dict(environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    try:
        yield iter(lambda: lines.get(timeout=START_SECONDS), None)
    finally:
        os.killpg(process.pid, signal.SIGINT)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def until_answered(watch: Stopwatch, folder: Path, environment: Mapping[str, str]) -> dict[str, Any]:
    """Run `make serve` until the demo's first adapter answers; return the time by stage."""
    with running(["make", "serve"], folder, environment) as lines:
        for line in lines:
            print("   ", line.rstrip())
            stage = next((name for start, name in STAGES.items() if line.startswith(start)), None)
            if stage is not None:
                watch.begin(stage)
            if stage == "answer":
                break
        else:
            raise SystemExit("the server ended before it was ready")
        answer(f"http://127.0.0.1:{environment['LORAGATE_PORT']}", folder / ".loragate")
        return watch.end()


def answer(base_url: str, data_dir: Path) -> None:
    """Return when the first token of an adapter's answer has arrived."""
    tenant = json.loads((data_dir / "demo.json").read_text())["tenants"][0]
    body = {"model": tenant["adapters"][0], "messages": QUESTION, "stream": True}
    headers = {"authorization": f"Bearer {tenant['api_key']}"}
    url = f"{base_url}/v1/chat/completions"
    with httpx.stream("POST", url, json=body, headers=headers, timeout=60, trust_env=False) as response:
        response.raise_for_status()
        for line in response.iter_lines():
            if line.startswith("data: {") and json.loads(line[6:])["choices"][0]["delta"].get("content"):
                return
    raise SystemExit("the adapter did not answer")


def from_clone(folder: Path) -> dict[str, Any]:
    """Clone, serve, serve again; return the times of both starts."""
    clone, environment = folder / "clone", fresh_environment(folder / "caches")
    first = Stopwatch()
    first.begin("clone")
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    figures = {"first": until_answered(first, clone, environment)}
    figures["first"]["installed_bytes"] = installed_bytes(clone / ".venv")
    second = Stopwatch()
    second.begin("make")
    return figures | {"second": until_answered(second, clone, environment)}


def installed_bytes(folder: Path) -> int:
    """Return the bytes of all files in a folder."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir())


def from_wheel(folder: Path) -> dict[str, Any]:
    """Install the wheel of the clone into an empty environment, with warm caches; return the time until an answer."""
    clone, environment = folder / "clone", fresh_environment(folder / "caches")
    uv, dist, home = clone / ".venv/bin/uv", folder / "dist", folder / "bare"
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(dist), str(clone)]
    subprocess.run(build, check=True, stdout=subprocess.DEVNULL)
    [wheel] = dist.glob("*.whl")
    sys.path.insert(0, str(ROOT / "requirements"))
    from pip_settings import names_a_place, read_pip_settings, uv_variables

    environment |= uv_variables(read_pip_settings(), environment)
    backend = [] if names_a_place(environment) else ["--torch-backend=cpu"]
    watch = Stopwatch()
    watch.begin("environment")
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, home], env=environment, check=True)
    watch.begin("packages")
    install = [uv, "pip", "install", "--quiet", "--python", home / "bin/python", "-c", clone / "constraints.txt"]
    subprocess.run([*install, *backend, wheel], env=environment, check=True)
    watch.begin("start")
    with running([str(home / "bin/loragate"), "demo"], folder, environment) as lines:
        for line in lines:
            print("   ", line.rstrip())
            if line.startswith("loragate ready"):
                watch.begin("answer")
            if line.startswith("  acme / json"):
                return watch.end() | {"installed_bytes": installed_bytes(home)}
    raise SystemExit("the demo did not answer")


def medians(runs: list[dict[str, Any]]) -> dict[str, float]:
    """Return the median of the seconds of each kind of start."""
    kinds = {kind for run in runs for kind in run}
    found = {kind: statistics.median(run[kind]["seconds"] for run in runs if kind in run) for kind in sorted(kinds)}
    for kind, seconds in found.items():
        print(f"{kind}: {seconds} s")
    return found


def main() -> None:
    """Measure, print, and write the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--keep", action="store_true", help="write benchmarks/results/first_answer.json")
    options = parser.parse_args()
    runs = []
    for number in range(options.runs):
        folder = Path(tempfile.mkdtemp(prefix="first-answer-"))
        try:
            print(f"run {number + 1} of {options.runs}")
            runs.append(from_clone(folder) | {"wheel": from_wheel(folder)})
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    figures = {"medians": medians(runs), "runs": runs}
    print(json.dumps(figures, indent=2))
    if options.keep:
        write("first_answer", figures)


if __name__ == "__main__":
    main()
