"""A gateway in its own process, which a test can kill and whose memory it can measure."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loragate.gateway.config.gateway import GatewayConfig
from tests.gateway.running_gateway import Gateway
from tests.gateway.stub_engine import StubEngine

_PROGRAM = """
import gc; gc.disable()  # imports create no garbage
import json, socket, sys
from pathlib import Path
from loragate.gateway.config.gateway import GatewayConfig
from loragate.gateway.config.imports import ImportConfig
from loragate.gateway.config.responses import ResponsesConfig
from loragate.gateway.server import run

fields = json.loads(sys.argv[1])
fields |= {"secret_key": fields["secret_key"].encode(), "data_dir": Path(fields["data_dir"])}
fields["imports"] = ImportConfig(hub=fields.pop("hub"), hosts=())
fields["responses"] = ResponsesConfig(store=fields.pop("store"))
sock = socket.create_server(("127.0.0.1", 0))
print(sock.getsockname()[1], flush=True)
run(GatewayConfig(**fields), sock)
"""


@dataclass(frozen=True)
class GatewayProcess:
    """A gateway that is ready, and its process."""

    gateway: Gateway
    process: asyncio.subprocess.Process

    def peak_bytes(self) -> int:
        """Return the peak memory since its start, or since `reset_peak`."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024

    def reset_peak(self) -> None:
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")


def connections(config: GatewayConfig) -> dict[str, Any]:
    """Return the required settings of a gateway as JSON values."""
    return {
        "database_url": config.database_url,
        "blob_url": config.blob_url,
        "secret_key": config.secret_key.decode(),
        "engine_target": config.engine_target,
        "data_dir": str(config.data_dir),
        "redis_url": config.redis_url,
    }


@asynccontextmanager
async def gateway_in_a_process(
    config: GatewayConfig, engine: StubEngine, tenants: tuple[str, str, str]
) -> AsyncIterator[GatewayProcess]:
    """Run a gateway in a process, which is killed at the end unless it has ended before."""
    more = {"hub": config.imports.hub, "max_changes_per_minute": config.max_changes_per_minute}
    more |= {"store": config.responses.store}
    fields = connections(config) | {"heartbeat_timeout": 30.0} | more
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _PROGRAM, json.dumps(fields), stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        port = int(await process.stdout.readline())
        tenant_id, key, other_key = tenants
        gateway = Gateway(f"http://127.0.0.1:{port}", config, engine, None, key, other_key, tenant_id)  # type: ignore[arg-type]
        await gateway.until_ready()
        yield GatewayProcess(gateway, process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
