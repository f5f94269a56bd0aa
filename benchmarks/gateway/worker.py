"""The gateway worker of the benchmarks: with Redis and an engine without a model, on its own core."""

import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np
import psutil
from safetensors.numpy import save_file

from benchmarks.gateway.engine import HIDDEN, MODEL, PROJECTIONS

MESSAGES = [{"role": "user", "content": "What is the capital of France?"}]
_ADMIN_KEY = "benchmark-admin-" + secrets.token_hex(16)


@dataclass(frozen=True)
class Worker:
    """The gateway under load. `key` belongs to a tenant with limits of every kind and the adapter `ours`."""

    port: int
    key: str
    process: psutil.Process
    redis_socket: str


@contextmanager
def running_worker(folder: Path, *engine_options: str, engines: int = 1) -> Iterator[Worker]:
    """Run a worker, its Redis and its engines within the block."""
    with ExitStack() as stack:
        redis = f"{folder}/redis.sock"
        redis_command = ["redis-server", "--port", "0", "--unixsocket", redis, "--save", "", "--dir", str(folder)]
        stack.enter_context(process(redis_command))
        targets = [f"unix:{folder}/engine-{number}.sock" for number in range(engines)]
        for target in targets:
            stack.enter_context(process([sys.executable, "-m", "benchmarks.gateway.engine", target, *engine_options]))
        port = free_port()
        command = [sys.executable, "-m", "loragate.cli.main", "gateway", "--engine-target", targets[0]]
        command += [part for number, target in enumerate(targets[1:], 1) for part in ("--engine", f"{number}={target}")]
        command += ["--port", str(port), "--grpc-port", str(free_port()), "--data-dir", f"{folder}/data"]
        settings = {"LORAGATE_REDIS_URL": f"unix://{redis}", "LORAGATE_ADMIN_KEY": _ADMIN_KEY}
        server = stack.enter_context(process(command, settings, own_core=True))
        until_ready(f"http://127.0.0.1:{port}/readyz")
        yield Worker(port, _provision(f"http://127.0.0.1:{port}", folder), server, redis)


def _provision(base_url: str, folder: Path) -> str:
    """Create a tenant with an adapter; return its key, which has limits too."""
    limits = {"requests_per_minute": 10_000_000, "tokens_per_minute": 1_000_000_000, "max_concurrency": 10_000}
    with httpx.Client(base_url=base_url, headers={"authorization": f"Bearer {_ADMIN_KEY}"}, timeout=30) as admin:
        tenant = admin.post("/admin/v1/tenants", json={"name": "bench", "limits": limits}).raise_for_status().json()
        created = admin.post(f"/admin/v1/tenants/{tenant['id']}/keys", json={"name": "bench", "limits": limits})
        key: str = created.raise_for_status().json()["secret"]
    config, tensors = _write_adapter(folder)
    with httpx.Client(base_url=base_url, headers={"authorization": f"Bearer {key}"}, timeout=30) as tenant_client:
        files = {path.name: path.read_bytes() for path in (config, tensors)}
        response = tenant_client.post("/v1/adapters", data={"name": "ours"}, files=files)
        response.raise_for_status()
    return key


def _write_adapter(folder: Path) -> tuple[Path, Path]:
    """Write PEFT's two files for the engine's only layer."""
    config, tensors = folder / "adapter_config.json", folder / "adapter_model.safetensors"
    names = ", ".join(f'"{name}"' for name in PROJECTIONS)
    config.write_text(
        f'{{"peft_type": "LORA", "base_model_name_or_path": "{MODEL}", "r": 4, "lora_alpha": 8,'
        f' "target_modules": [{names}]}}'
    )
    stem = "base_model.model.model.layers.0.self_attn"
    halves = {"A": (4, HIDDEN), "B": (HIDDEN, 4)}
    save_file(
        {
            f"{stem}.{name}.lora_{half}.weight": np.ones(shape, np.float32)
            for name in PROJECTIONS
            for half, shape in halves.items()
        },
        tensors,
    )
    return config, tensors


@contextmanager
def process(
    command: list[str], settings: dict[str, str] | None = None, *, own_core: bool = False
) -> Iterator[psutil.Process]:
    """Run a process within the block; raise RuntimeError with its output if it exits before.

    The first core is reserved for processes with `own_core`.
    """
    if shutil.which(command[0]) is None:
        raise SystemExit(f"{command[0]} is not installed")
    with tempfile.TemporaryFile() as output:
        child = subprocess.Popen(command, env=os.environ | (settings or {}), stdout=output, stderr=output)
        running = psutil.Process(child.pid)
        first, *others = cores()
        running.cpu_affinity([first] if own_core else others or [first])
        try:
            yield running
            if child.poll() is not None:
                output.seek(0)
                raise RuntimeError(f"{command[0]} exited: {output.read()[-2000:].decode(errors='replace')}")
        finally:
            child.terminate()
            try:
                child.wait(10)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


def cores() -> list[int]:
    return sorted(os.sched_getaffinity(0))


def until_ready(url: str) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError:
            time.sleep(0.1)
    raise SystemExit(f"{url} did not respond")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port
