"""Ray Serve starts engines, scales them, and replaces one that dies; the gateway reaches them itself."""

import json
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from running_server import ADMIN_KEY, clean_environment, client, ok, until

from tests.clients.environments import Environments, cache_folder

from .conftest import Tiny

pytestmark = pytest.mark.long

PROMPT = list(range(3, 19))
SCALED = {"max_engines": 3, "max_queue_seconds": 0.2, "requests_per_engine": 1, "scale_up_seconds": 1}


@dataclass
class Cluster:
    """A local Ray cluster whose Serve runs the application, and a gateway beside it."""

    gateway: subprocess.Popen[bytes]
    base_url: str
    key: str

    def engines(self) -> dict[str, dict[str, Any]]:
        """Return the engines that the gateway uses, by id."""
        with client(self.base_url, ADMIN_KEY) as admin:
            listed = ok(admin.get("/admin/v1/engines"))["data"]
        return {each["id"]: each for each in listed if each["state"] == "ready"}

    def ask(self, tokens: int = 200) -> str:
        """Send a request; return "ok" or the error's code."""
        body = {"model": "tiny-llama", "prompt": PROMPT, "max_tokens": tokens, "ignore_eos": True}
        with client(self.base_url, self.key) as http:
            response = http.post("/v1/completions", json=body)
        return "ok" if response.is_success else str(response.json()["error"]["code"])

    @contextmanager
    def load(self, calls: int = 24) -> Iterator[Counter[str]]:
        """Keep so many calls open; yield the number of each outcome."""
        outcomes: Counter[str] = Counter()
        ending = threading.Event()

        def repeat(_: int) -> None:
            while not ending.is_set():
                outcomes[self.ask()] += 1

        with ThreadPoolExecutor(calls) as threads:
            running = [threads.submit(repeat, number) for number in range(calls)]
            try:
                yield outcomes
            finally:
                ending.set()
                for each in running:
                    each.result()


@pytest.fixture(scope="module")
def ray_python(request: pytest.FixtureRequest) -> Path:
    """The interpreter of an environment with Ray, which finds this project's packages after its own."""
    python = Environments(cache_folder(request.config)).python("ray")
    (packages,) = python.parent.parent.glob("lib/*/site-packages")
    ours = Path(httpx.__file__).parent.parent
    (packages / "of_the_project.pth").write_text(f"import site; site.addsitedir({str(ours)!r})\n")
    return python


@pytest.fixture(scope="module")
def cluster(ray_python: Path, tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("ray")
    environment = clean_environment() | {
        "LORAGATE_ADMIN_KEY": ADMIN_KEY,
        "LORAGATE_DATA_DIR": str(folder / "data"),
        "LORAGATE_ENGINE_TARGET": "none",
        "LORAGATE_ENGINE__MAX_BATCH_SIZE": "2",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_TMPDIR": "/tmp",
    }
    tools = ray_python.parent
    gateway = subprocess.Popen(
        [sys.executable, "-m", "loragate.cli.main", "gateway", "--port", "0", "--grpc-port", "0"],
        env=environment,
        stdout=subprocess.PIPE,
    )
    try:
        base_url = _base_url(gateway)
        start = [str(tools / "ray"), "start", "--head", "--num-cpus", "4", "--include-dashboard=false"]
        subprocess.run([*start, "--disable-usage-stats"], env=environment, check=True, cwd=folder)
        options = SCALED | {"model": tiny.base, "scale_down_seconds": 5, "drain_seconds": 20}
        arguments = [f"{name}={value}" for name, value in options.items()]
        serve = [str(tools / "serve"), "run", "--non-blocking", "loragate.deploy.ray:app"]
        subprocess.run([*serve, *arguments], env=environment, check=True, cwd=folder, timeout=300)
        with client(base_url, ADMIN_KEY) as admin:
            tenant = ok(admin.post("/admin/v1/tenants", json={"name": "acme"}))
            key = ok(admin.post(f"/admin/v1/tenants/{tenant['id']}/keys", json={"name": "test"}))["secret"]
        yield Cluster(gateway, base_url, key)
    finally:
        subprocess.run([str(tools / "ray"), "stop", "--force"], env=environment, check=False)
        gateway.terminate()
        gateway.wait(60)


def _base_url(gateway: "subprocess.Popen[bytes]") -> str:
    """Return the address on which a gateway listens, once it does."""
    process = psutil.Process(gateway.pid)

    def ports() -> list[int]:
        listening = [each for each in process.net_connections("tcp") if each.status == psutil.CONN_LISTEN]
        return [each.laddr.port for each in listening]

    def answering() -> list[str]:
        found = []
        for port in ports():
            try:
                if httpx.get(f"http://127.0.0.1:{port}/healthz").is_success:
                    found.append(f"http://127.0.0.1:{port}")
            except httpx.HTTPError:
                continue
        return found

    until(lambda: bool(answering()), 60)
    return answering()[0]


def _connected_ports(process: "subprocess.Popen[bytes]") -> set[int]:
    """Return the ports that a process has opened connections to."""
    connections = psutil.Process(process.pid).net_connections("tcp")
    own = {each.laddr.port for each in connections if each.status == psutil.CONN_LISTEN}
    return {
        each.raddr.port
        for each in connections
        if each.status == psutil.CONN_ESTABLISHED and each.raddr and each.laddr.port not in own
    }


def _replica_of(target: str) -> psutil.Process:
    """Return Serve's replica that runs the engine at an address."""
    for process in psutil.process_iter(["cmdline", "environ"]):
        if (process.info["environ"] or {}).get("LORAGATE_ENGINE__ADVERTISE") == target:
            parent = process.parent()
            if parent is not None and "ServeReplica" in " ".join(parent.cmdline()):
                return parent
    raise AssertionError(f"no replica runs the engine at {target}")


def test_engines_are_scaled_replaced_and_drained(cluster: Cluster) -> None:
    until(lambda: len(cluster.engines()) == 1, 60)
    assert cluster.ask(4) == "ok"
    with cluster.load() as outcomes:
        until(lambda: len(cluster.engines()) == 3, 240)
        before = cluster.engines()
        targets = {int(each["target"].rpartition(":")[2]) for each in before.values()}
        assert _connected_ports(cluster.gateway) == targets, "tokens come from the engines themselves"
        assert outcomes.keys() <= {"ok"}
        victim, *_ = before
        _replica_of(before[victim]["target"]).kill()
        until(lambda: victim not in cluster.engines(), 30)
        until(lambda: len(cluster.engines()) == 3, 240)
        assert outcomes.keys() <= {"ok", "engine_unavailable"}
        lost = outcomes["engine_unavailable"]
        assert lost <= 2, "the two that were in its batch"
    until(lambda: len(cluster.engines()) == 2, 120)
    with cluster.load(calls=1) as outcomes:  # while the next one is drained
        until(lambda: len(cluster.engines()) == 1, 120)
    assert set(outcomes) == {"ok"}


def test_serve_says_which_engine_answers(cluster: Cluster) -> None:
    found = json.loads(httpx.get(f"http://127.0.0.1:{os.environ.get('RAY_SERVE_PORT', '8000')}/").text)
    assert found["id"] in cluster.engines()
