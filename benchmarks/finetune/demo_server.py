"""A `loragate serve --demo` for benchmarks of the whole server; the demo is trained once per data directory."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openai import OpenAI

DATA_DIR = Path("build/benchmark-demo")
_READY = "loragate ready"
_STOP_SECONDS = 90


@dataclass(frozen=True)
class DemoServer:
    """A running demo server with its fine-tune worker."""

    base_url: str
    demo: dict[str, Any]

    def client(self, tenant: int = 0) -> OpenAI:
        """Return a client of one of the demo's tenants."""
        key = self.demo["tenants"][tenant]["api_key"]
        return OpenAI(base_url=f"{self.base_url}/v1", api_key=key, max_retries=0, timeout=300)


@contextmanager
def demo_server(data_dir: Path) -> Iterator[DemoServer]:
    """Run a server within the block, from when it is ready."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("LORAGATE_")}
    ports = ("--port", "0", "--grpc-port", "0", "--panel-port", "0")
    command = [sys.executable, "-m", "loragate.cli.main", "serve", "--demo", *ports, "--data-dir", str(data_dir)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=clean)
    assert server.stdout is not None
    try:
        while (line := server.stdout.readline()).strip() != _READY:
            if not line:
                raise SystemExit(f"the server ended with status {server.wait()}")
        runtime = json.loads((data_dir / "runtime.json").read_text())
        if runtime["pids"]["finetune"] is None:
            raise SystemExit("no fine-tune worker runs: pip install 'loragate[finetune]'")
        yield DemoServer(runtime["base_url"], json.loads((data_dir / "demo.json").read_text()))
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(_STOP_SECONDS)
