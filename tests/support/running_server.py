"""A real `loragate serve`, started and stopped as a user would."""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import psutil

ADMIN_KEY = "an-admin-key-for-tests-only-0123456789"
START_SECONDS = 600
_USUAL = {
    "OMP_NUM_THREADS": "1",
    "LORAGATE_ADMIN_KEY": ADMIN_KEY,
    "LORAGATE_FINETUNE__ENABLED": "false",
    "LORAGATE_PANEL__ENABLED": "false",
}


class RunningServer:
    """A server process that is ready; `lines` has its output on stdout."""

    def __init__(self, data_dir: Path, *options: str, **environment: str) -> None:
        self.data_dir = data_dir
        self.lines: list[str] = []
        self._queue: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        ports = ["--port", "0", "--grpc-port", "0", "--panel-port", "0"]
        command = [sys.executable, "-m", "loragate.cli.main", "serve", *ports, "--data-dir", str(data_dir)]
        self.process = subprocess.Popen(
            [*command, *options],
            env=clean_environment() | _USUAL | environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.wait_until_ready()

    @property
    def runtime(self) -> dict[str, Any]:
        runtime: dict[str, Any] = json.loads((self.data_dir / "runtime.json").read_text())
        return runtime

    @property
    def base_url(self) -> str:
        return str(self.runtime["base_url"])

    @property
    def trainers(self) -> list[int]:
        """Return the training processes of the current fine-tune worker. Of one in a sandbox it is the sandbox's, once
        it has started the trainer: killed before, it would leave it behind."""
        try:
            children = psutil.Process(self.runtime["pids"]["finetune"]).children()
            return [each.pid for each in children if any(map(_trains, (each, *each.children(recursive=True))))]
        except psutil.NoSuchProcess:
            return []

    def admin(self) -> httpx.Client:
        return client(self.base_url, ADMIN_KEY)

    def add_tenant(self, name: str, *scopes: str) -> str:
        """Create a tenant; return its key, which has all usual scopes unless some are given."""
        body = {"name": "test"} | ({"scopes": list(scopes)} if scopes else {})
        with self.admin() as admin:
            tenant = ok(admin.post("/admin/v1/tenants", json={"name": name}))
            key = ok(admin.post(f"/admin/v1/tenants/{tenant['id']}/keys", json=body))
        return str(key["secret"])

    def wait_until_ready(self) -> None:
        while True:
            line = self._queue.get(timeout=START_SECONDS)
            assert line is not None, f"the server ended with status {self.process.wait()} before it was ready"
            if line == "loragate ready":
                return

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(how)
        status = self.process.wait(60)
        self._reader.join()
        return status

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as stdout:
            for line in stdout:
                self.lines.append(line.rstrip("\n"))
                self._queue.put(self.lines[-1])
        self._queue.put(None)


def client(base_url: str, key: str) -> httpx.Client:
    return httpx.Client(base_url=base_url, headers={"authorization": f"Bearer {key}"}, timeout=120)


def ok(response: httpx.Response) -> Any:
    assert response.is_success, f"{response.status_code}: {response.text}"
    return response.json()


def upload(tenant: httpx.Client, name: str, folder: Path, **fields: str) -> httpx.Response:
    files = {file: (folder / file).read_bytes() for file in ("adapter_config.json", "adapter_model.safetensors")}
    return tenant.post("/v1/adapters", data={"name": name} | fields, files={k: (k, v) for k, v in files.items()})


def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    """Poll a condition of another process until it holds."""
    waited = threading.Event()
    for _ in range(int(seconds / 0.05)):
        if condition():
            return
        waited.wait(0.05)
    raise AssertionError(f"did not come true in {seconds} s")


def clean_environment() -> dict[str, str]:
    """Return this environment without LORAGATE_ variables, which the server would read and might reject."""
    return {name: value for name, value in os.environ.items() if not name.startswith("LORAGATE_")}


def _trains(process: psutil.Process) -> bool:
    command = process.cmdline()
    return "loragate.finetune.training.child" in command and Path(command[0]).name.startswith("python")
