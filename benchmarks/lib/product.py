"""A `loragate serve` in a process of its own, for benchmarks of the whole product."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil

ADMIN_KEY = "an-admin-key-for-benchmarks-only"
_READY = "loragate ready"
_STOP_SECONDS = 90


@dataclass(frozen=True)
class Product:
    """A running server."""

    process: psutil.Process
    data_dir: Path

    @property
    def runtime(self) -> dict[str, Any]:
        """Return what the server wrote of its addresses and processes."""
        runtime: dict[str, Any] = json.loads((self.data_dir / "runtime.json").read_text())
        return runtime

    @property
    def base_url(self) -> str:
        return str(self.runtime["base_url"])

    @property
    def port(self) -> int:
        return int(self.base_url.rpartition(":")[2])

    def client(self, key: str) -> httpx.Client:
        """Return a client with a tenant's key, or ADMIN_KEY."""
        return httpx.Client(base_url=self.base_url, headers={"authorization": f"Bearer {key}"}, timeout=60)

    def add_tenant(self, name: str, limits: Mapping[str, int] | None = None) -> str:
        """Create a tenant; return its key. Needs a server that was started with ADMIN_KEY."""
        with self.client(ADMIN_KEY) as admin:
            body = {"name": name} | ({"limits": dict(limits)} if limits else {})
            tenant = admin.post("/admin/v1/tenants", json=body).raise_for_status().json()
            created = admin.post(f"/admin/v1/tenants/{tenant['id']}/keys", json={"name": "benchmark"})
            return str(created.raise_for_status().json()["secret"])


@contextmanager
def serving(
    data_dir: Path,
    *options: str,
    settings: Mapping[str, str] | None = None,
    python: str = sys.executable,
    folder: Path | None = None,
    log: Path | None = None,
    stop_seconds: float = _STOP_SECONDS,
) -> Iterator[Product]:
    """Run a server within the block, from when it is ready, in this session.

    `settings` are added to the environment, which passes on no other settings of loragate; `folder` is where it runs,
    and `log` the file for its messages. What has not ended after `stop_seconds`, for example a trainer that hangs, is
    killed.
    """
    clean = {name: value for name, value in os.environ.items() if not name.startswith("LORAGATE_")}
    ports = ("--port", "0", "--grpc-port", "0", "--panel-port", "0")
    command = [python, "-m", "loragate.cli.main", "serve", *options, *ports, "--data-dir", str(data_dir)]
    with nullcontext() if log is None else log.open("wb") as messages:
        server = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=messages,
            text=True,
            env=clean | dict(settings or {}),
            cwd=folder,
        )
    try:
        _wait_until_ready(server, log)
        yield Product(psutil.Process(server.pid), data_dir)
    finally:
        _stop(server, stop_seconds)


def _wait_until_ready(server: "subprocess.Popen[str]", log: Path | None) -> None:
    assert server.stdout is not None
    while (line := server.stdout.readline()).strip() != _READY:
        if not line:
            messages = "" if log is None else f": {log.read_text()[-3000:]}"
            raise SystemExit(f"the server ended with status {server.wait()}{messages}")


def _stop(server: "subprocess.Popen[str]", seconds: float) -> None:
    family = [] if server.poll() is not None else psutil.Process(server.pid).children(recursive=True)
    server.terminate()
    with suppress(subprocess.TimeoutExpired):
        server.wait(seconds)
    for process in (*family, server):
        with suppress(psutil.NoSuchProcess):
            process.kill()
    server.wait()
    assert server.stdout is not None
    server.stdout.close()
