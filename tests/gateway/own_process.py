"""A gateway in a process of its own: one that can be killed, and whose memory is its alone."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loragate.gateway.config.gateway import GatewayConfig
from tests.gateway.running import Gateway
from tests.gateway.stub_engine import StubEngine

_PROGRAM = """
import json, socket, sys
from pathlib import Path
from loragate.gateway.config.gateway import GatewayConfig
from loragate.gateway.config.imports import ImportConfig
from loragate.gateway.server import run

fields = json.loads(sys.argv[1])
fields |= {"secret_key": fields["secret_key"].encode(), "data_dir": Path(fields["data_dir"])}
fields["imports"] = ImportConfig(hub=fields.pop("hub"), hosts=())
sock = socket.create_server(("127.0.0.1", 0))
print(sock.getsockname()[1], flush=True)
run(GatewayConfig(**fields), sock)
"""


@dataclass(frozen=True)
class OwnProcess:
    """A gateway that is ready, and the process it runs in."""

    gateway: Gateway
    process: asyncio.subprocess.Process

    def peak_bytes(self) -> int:
        """The most memory that it has held since it started, or since `forget_peak`."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024

    def forget_peak(self) -> None:
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")


def connections(config: GatewayConfig) -> dict[str, Any]:
    """The settings without which there is no gateway, as JSON can hold them."""
    return {
        "database_url": config.database_url,
        "blob_url": config.blob_url,
        "secret_key": config.secret_key.decode(),
        "engine_target": config.engine_target,
        "data_dir": str(config.data_dir),
    }


@asynccontextmanager
async def in_own_process(
    config: GatewayConfig, engine: StubEngine, tenants: tuple[str, str, str]
) -> AsyncIterator[OwnProcess]:
    """Killed at the end, unless it has ended before."""
    fields = connections(config) | {"heartbeat_timeout": 30.0, "hub": config.imports.hub}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _PROGRAM, json.dumps(fields), stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        port = int(await process.stdout.readline())
        tenant_id, key, other_key = tenants
        gateway = Gateway(f"http://127.0.0.1:{port}", config, engine, None, key, other_key, tenant_id)  # type: ignore[arg-type]
        await gateway.until_ready()
        yield OwnProcess(gateway, process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
