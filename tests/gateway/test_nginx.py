"""The nginx configuration in deploy/, in front of a gateway and a panel: nothing is buffered, a page has its WebSocket,
and both learn who calls."""

import asyncio
import json
import logging
import os
import shutil
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import grpc
import grpc.aio
import httpx
import pytest
from certificates import Authority
from ports import accepts, free_port
from skip_for_missing import skip_for_missing

from loragate.gateway.config.gateway import GatewayConfig
from loragate.v1.inference_pb2 import ChatRequest
from tests.gateway.grpc_client import Client
from tests.gateway.running_gateway import Gateway, serving
from tests.gateway.stub_engine import StubEngine
from tests.gateway.tiny_model import MODEL_ID
from tests.panel.page_socket import open_page, page_socket, sign_in
from tests.panel.world import Panel

CONFIG = Path(__file__).parents[2] / "deploy/nginx/loragate.conf"
NAME, PANEL_NAME = "llm.example.org", "panel.example.org"
MAIN = """
daemon off; master_process off; pid {folder}/pid; error_log {folder}/log;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
    include {folder}/loragate.conf;
}}
"""


@dataclass
class Proxied:
    """A gateway behind nginx, which has a certificate for both names."""

    gateway: Gateway
    port: int
    authority: Authority

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def trusting(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cadata=self.authority.pem.decode())
        context.check_hostname = False  # nginx is reached by an address
        return context

    @asynccontextmanager
    async def http(self, address: str = "127.0.0.1") -> AsyncIterator[httpx.AsyncClient]:
        """Yield a client that connects to nginx from this address."""
        transport = httpx.AsyncHTTPTransport(verify=self.trusting(), local_address=address)
        headers = {"authorization": f"Bearer {self.gateway.key}", "host": NAME}
        async with httpx.AsyncClient(transport=transport, base_url=self.url, headers=headers, timeout=60) as client:
            yield client


@pytest.fixture
async def trusting_gateway(
    config: GatewayConfig, engine: StubEngine, tenants: tuple[str, str, str]
) -> AsyncIterator[Gateway]:
    """A gateway that trusts nginx to say who calls."""
    async with serving(replace(config, trusted_proxies=("127.0.0.1",)), engine, tenants) as gateway:
        await gateway.until_ready()
        yield gateway
        engine.resume.set()


@asynccontextmanager
async def nginx_before(gateway: Gateway, panel_address: str, folder: Path) -> AsyncIterator[Proxied]:
    program = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        skip_for_missing("nginx")
    authority, port = Authority(), free_port()
    authority.write(folder / "tls.pem", folder / "tls.key", NAME, PANEL_NAME)
    text = CONFIG.read_text()
    for shipped, here in (
        ("listen 443 ", f"listen 127.0.0.1:{port} "),
        ("127.0.0.1:8000", gateway.base_url.removeprefix("http://")),
        ("127.0.0.1:50051", gateway.grpc_target),
        ("127.0.0.1:8001", panel_address),
        ("/etc/letsencrypt/live/llm.example.org/fullchain.pem", str(folder / "tls.pem")),
        ("/etc/letsencrypt/live/llm.example.org/privkey.pem", str(folder / "tls.key")),
    ):
        assert shipped in text
        text = text.replace(shipped, here)
    (folder / "loragate.conf").write_text(text)
    (folder / "nginx.conf").write_text(MAIN.format(folder=folder))
    nginx = await asyncio.create_subprocess_exec(program, "-p", str(folder), "-c", str(folder / "nginx.conf"))
    try:
        while not accepts(port):
            assert nginx.returncode is None, (folder / "log").read_text()
            await asyncio.sleep(0.02)
        yield Proxied(gateway, port, authority)
    finally:
        nginx.terminate()
        await nginx.wait()


@pytest.fixture
async def proxied(trusting_gateway: Gateway, tmp_path: Path) -> AsyncIterator[Proxied]:
    async with nginx_before(trusting_gateway, "127.0.0.1:9", tmp_path) as started:  # without a panel
        yield started


async def test_tokens_arrive_while_the_model_writes(proxied: Proxied) -> None:
    engine = proxied.gateway.engine
    engine.respond_with("the answer")
    engine.pause_after = 1
    body = {"model": MODEL_ID, "messages": [{"role": "user", "content": "?"}], "stream": True}
    async with proxied.http() as http, http.stream("POST", "/v1/chat/completions", json=body) as response:
        events = response.aiter_lines()
        while '"content":"t' not in (await anext(events)):
            pass  # the engine writes nothing more until this has been read
        await engine.paused.wait()
        engine.resume.set()
        assert [line async for line in events if line][-1] == "data: [DONE]"


async def test_messages_arrive_while_the_model_writes(proxied: Proxied) -> None:
    engine = proxied.gateway.engine
    engine.respond_with("the answer")
    engine.pause_after = 1
    credentials = grpc.ssl_channel_credentials(proxied.authority.pem)
    named = [("grpc.ssl_target_name_override", NAME), ("grpc.default_authority", NAME)]
    async with grpc.aio.secure_channel(f"127.0.0.1:{proxied.port}", credentials, options=named) as channel:
        client = Client(channel, proxied.gateway.key)
        request = ChatRequest(model=MODEL_ID, messages=[{"role": "user", "content": "?"}])
        chunks = aiter(client.inference.ChatStream(request, metadata=client.metadata, timeout=60))
        first = await anext(chunks)
        await engine.paused.wait()
        engine.resume.set()
        assert "".join([first.text, *[chunk.text async for chunk in chunks]]) == "the answer"


async def test_the_gateway_learns_the_clients_address(proxied: Proxied, caplog: pytest.LogCaptureFixture) -> None:
    """And not the one that the client claims to have."""
    with caplog.at_level(logging.INFO, "loragate.access"):
        async with proxied.http("127.0.0.2") as http:
            claimed = {"x-forwarded-for": "203.0.113.7"}
            assert (await http.get("/v1/adapters", headers=claimed)).status_code == 200
    lines = [json.loads(record.getMessage()) for record in caplog.records if record.name == "loragate.access"]
    assert [line["client"] for line in lines] == ["127.0.0.2"]


async def test_large_bodies_are_the_gateways_to_judge(proxied: Proxied) -> None:
    async with proxied.http() as http:
        body = {"model": MODEL_ID, "messages": [{"role": "user", "content": "x " * (2 << 20)}]}
        answer = await http.post("/v1/chat/completions", json=body)
    assert answer.json()["error"]["code"] == "context_length_exceeded"


@pytest.mark.long
@pytest.mark.parametrize("named", ["panel__hosts", "panel__public_url"])
async def test_pages_are_updated_over_tls(trusting_gateway: Gateway, tmp_path: Path, named: str) -> None:
    """The panel learns from nginx or, with a public URL, from its settings that browsers use TLS."""
    name = {"panel__hosts": json.dumps([PANEL_NAME]), "panel__public_url": f"https://{PANEL_NAME}"}[named]
    settings = {"panel__gateway_url": trusting_gateway.base_url, "forwarded_allow_ips": "127.0.0.1", named: name}
    panel = await asyncio.to_thread(Panel, tmp_path, **settings)
    try:
        async with nginx_before(trusting_gateway, panel.address, tmp_path) as proxied:
            await asyncio.to_thread(use_panel, proxied)
    finally:
        await asyncio.to_thread(panel.close)


def use_panel(proxied: Proxied) -> None:
    """Sign in, open a page, and use its WebSocket."""
    verify = proxied.trusting()
    with httpx.Client(base_url=proxied.url, headers={"host": PANEL_NAME}, verify=verify, timeout=60) as browser:
        cookie = sign_in(browser, proxied.gateway.key).headers["set-cookie"]
        assert (cookie.startswith("__Host-loragate-panel-"), cookie.endswith("; Secure")) == (True, True)
        assert "strict-transport-security" in browser.get("/").headers
        with page_socket(browser, open_page(browser), verify) as page:
            assert page.responds()
