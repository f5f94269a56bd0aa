"""A gateway on a real port, in the event loop of the test."""

import asyncio
import os
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import uvicorn
from openai import AsyncOpenAI, DefaultAsyncHttpxClient

from loragate.engine.server_tls import TlsFiles
from loragate.gateway.app import create_app
from loragate.gateway.config.gateway import GatewayConfig
from loragate.gateway.connections.acceptor import AcceptingServer
from loragate.gateway.connections.tls import ClientTls
from loragate.gateway.http.lifecycle import Lifecycle
from loragate.gateway.resilience.timeouts import wait_for_event
from loragate.gateway.server import uvicorn_settings
from loragate.gateway.services import Services
from tests.gateway.stub_engine import StubEngine

ADMIN_KEY = "an-admin-key-of-the-tests"
_STOP_SECONDS = 60
_CERTIFICATES = ssl.create_default_context()  # each client would load them again, which takes 20 ms


@dataclass
class Gateway:
    """A gateway on a real port, with the engine and the tenants that a test needs."""

    base_url: str
    config: GatewayConfig
    engine: StubEngine
    lifecycle: Lifecycle
    key: str
    other_key: str
    tenant_id: str
    grpc_target: str = ""
    services: Services | None = None  # None: it runs in its own process
    server: uvicorn.Server | None = None

    @property
    def verify(self) -> ssl.SSLContext:
        tls = self.config.tls
        return _CERTIFICATES if tls is None else ClientTls(tls.cert, tls.own_client).context()

    def openai(self, key: str | None = None, *, max_retries: int = 0) -> AsyncOpenAI:
        return AsyncOpenAI(
            base_url=f"{self.base_url}/v1",
            api_key=key or self.key,
            max_retries=max_retries,
            http_client=DefaultAsyncHttpxClient(verify=self.verify),
        )

    def http(self, key: str | None = None) -> httpx.AsyncClient:
        headers = {"authorization": f"Bearer {key or self.key}"}
        # A request on an idle connection fails if it meets the end of `stall_seconds`.
        limits = httpx.Limits(keepalive_expiry=min(5.0, self.config.stall_seconds / 2))
        return httpx.AsyncClient(base_url=self.base_url, headers=headers, timeout=30, verify=self.verify, limits=limits)

    def admin(self) -> httpx.AsyncClient:
        return self.http(ADMIN_KEY)

    async def until_ready(self) -> None:
        async with self.http() as http:
            while (await http.get("/readyz")).status_code != 200:
                await asyncio.sleep(0.02)

    def spools(self, process: int | str = "self") -> list[str]:
        """Return the spool files of uploads in progress. Such files have no name; they exist for those that have them
        open.
        """
        opened = [_target(file) for file in Path(f"/proc/{process}/fd").iterdir()]
        return [name for name in opened if name.startswith(str(self.config.upload_dir))]

    async def until_nothing_is_spooled(self, process: int | str = "self") -> None:
        async with asyncio.timeout(30):
            while self.spools(process):
                await asyncio.sleep(0.02)
        assert list(self.config.upload_dir.glob("*")) == []


def _target(file: Path) -> str:
    with suppress(OSError):  # it was closed meanwhile
        return os.readlink(file)
    return ""


class _Server(AcceptingServer):
    """Ends on request, not at uvicorn's next check."""

    def __init__(self, settings: uvicorn.Config, tls: TlsFiles | None) -> None:
        super().__init__(settings, tls)
        self._ending = asyncio.Event()

    def end(self) -> None:
        self.should_exit = True
        self._ending.set()

    async def main_loop(self) -> None:
        ticks = 0
        while not await self.on_tick(ticks):
            await wait_for_event(self._ending, 0.1)
            ticks += 1


@asynccontextmanager
async def serving(
    config: GatewayConfig,
    engine: StubEngine,
    tenants: tuple[str, str, str],
    *,
    send_buffer: int | None = None,
    port: int = 0,
) -> AsyncIterator[Gateway]:
    """Run a gateway. `send_buffer` bounds what the kernel buffers for clients that do not read; its default is
    megabytes.
    """
    lifecycle = Lifecycle()
    sock = socket.create_server(("127.0.0.1", port))
    if send_buffer is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
    app = create_app(config, lifecycle)
    server = _Server(uvicorn_settings(app, config), config.tls)
    serving = asyncio.create_task(server.serve(sockets=[sock]))
    base_url = f"{'https' if config.tls else 'http'}://127.0.0.1:{sock.getsockname()[1]}"
    tenant_id, key, other_key = tenants
    try:
        while not server.started:
            assert not serving.done(), serving.exception()
            await asyncio.sleep(0.01)
        target = f"127.0.0.1:{app.state.grpc_port}"
        services: Services = app.state.services
        yield Gateway(base_url, config, engine, lifecycle, key, other_key, tenant_id, target, services, server)
    finally:
        server.end()
        if not (await asyncio.wait({serving}, timeout=_STOP_SECONDS))[0]:
            server.force_exit = True  # a test that failed left a connection that never ends
        await serving
