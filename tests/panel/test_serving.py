"""The panel's port: TLS, and whose word it takes for a client's address."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from certificates import server_files
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import JSONResponse

from loragate.engine.server_tls import TlsFiles
from loragate.gateway.connections.acceptor import AcceptingServer
from loragate.panel.config import PanelConfig
from loragate.panel.server import uvicorn_settings


async def echo(request: Request) -> JSONResponse:
    return JSONResponse([request.url.scheme, request.client.host if request.client else ""])


@asynccontextmanager
async def served(config: PanelConfig, verify: ssl.SSLContext | bool = True) -> AsyncIterator[httpx.AsyncClient]:
    """An application on the panel's port, and a client of it."""
    app = FastAPI()
    app.add_route("/", echo)
    settings = uvicorn_settings(app, config)
    sock = socket.create_server(("127.0.0.1", 0))
    server = AcceptingServer(settings, config.tls)
    serving = asyncio.create_task(server.serve(sockets=[sock]))
    while not server.started:
        assert not serving.done(), serving.exception()
        await asyncio.sleep(0.01)
    port = sock.getsockname()[1]
    scheme = "https" if config.tls else "http"
    async with httpx.AsyncClient(base_url=f"{scheme}://localhost:{port}", verify=verify, trust_env=False) as client:
        yield client
    server.should_exit = True
    await serving


@pytest.mark.parametrize(
    ("trusted", "seen"), [((), ["http", "127.0.0.1"]), (("127.0.0.0/8", "10.0.0.0/8"), ["https", "203.0.113.7"])]
)
async def test_only_trusted_proxies_say_who_calls(trusted: tuple[str, ...], seen: list[str]) -> None:
    """The client's own words come first in the header, the proxies' last."""
    claimed = {"x-forwarded-for": "192.0.2.1, 203.0.113.7, 10.1.2.3", "x-forwarded-proto": "https"}
    async with served(PanelConfig("http://gateway", trusted_proxies=trusted)) as client:
        assert (await client.get("/", headers=claimed)).json() == seen


async def test_with_a_certificate_it_speaks_tls(tmp_path: Path) -> None:
    cert, key, ca = server_files(tmp_path)
    trusting = ssl.create_default_context(cafile=str(ca))
    async with served(PanelConfig("http://gateway", tls=TlsFiles(cert, key)), trusting) as client:
        assert (await client.get("/")).json() == ["https", "127.0.0.1"]
        with pytest.raises(httpx.TransportError):
            await client.get(str(client.base_url).replace("https", "http"))


class Idle:
    """A connection that waits for a request."""

    def __init__(self) -> None:
        self.is_open = True

    def make_room(self) -> None:
        self.is_open = False


def test_a_new_connection_closes_the_oldest_idle_one_at_the_limit() -> None:
    http: Any = uvicorn_settings(FastAPI(), PanelConfig("http://gateway", max_connections=3)).http
    connections = [Idle() for _ in range(4)]
    assert all(http.connection_limit.open(each, f"192.0.2.{n}") for n, each in enumerate(connections))
    assert [each.is_open for each in connections] == [False, True, True, True]
