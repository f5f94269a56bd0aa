"""The gateway's ports with a certificate."""

import asyncio
import socket
import ssl
from dataclasses import replace
from pathlib import Path

import grpc
import grpc.aio
import httpx
import pytest
from certificates import server_files
from tokenizers import Tokenizer

from loragate.cli.client.http.api import Api, ConnectionFailed
from loragate.engine.server_tls import TlsFiles
from loragate.gateway.connections.acceptor import Acceptor
from loragate.gateway.connections.tls import ClientTls
from loragate.v1.adapters_pb2 import ListAdaptersRequest
from tests.gateway.gateway_setup import new_config, new_tenants, stub_engine
from tests.gateway.grpc_client import Client
from tests.gateway.running_gateway import ADMIN_KEY, Gateway, serving

NAME = "gateway.example"


async def test_both_ports_speak_tls_and_nothing_else(tokenizer: Tokenizer, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    cert, key, ca = server_files(tmp_path, NAME)
    other, _, _ = server_files(tmp_path / "other", NAME)
    async with stub_engine(tokenizer) as engine:
        config = replace(await new_config(tmp_path, engine), tls=TlsFiles(cert, key))
        async with serving(config, engine, await new_tenants(config)) as gateway:
            await gateway.until_ready()
            await asyncio.to_thread(over_http, gateway.base_url, cert, other)
            await over_grpc(gateway, ca)


def over_http(url: str, cert: Path, other: Path) -> None:
    """Commands on its machine trust its own certificate, which does not name the address, and no other one."""
    with Api(url, ADMIN_KEY, ClientTls(cert)) as api:
        assert len(list(api.list_all("/admin/v1/tenants"))) == 2
    for wrong in (other, None):
        with Api(url, ADMIN_KEY, ClientTls(wrong)) as api, pytest.raises(ConnectionFailed):
            api.call("GET", "/admin/v1/tenants")
    with pytest.raises(httpx.TransportError):
        httpx.get(url.replace("https", "http"), trust_env=False)


async def over_grpc(gateway: Gateway, ca: Path) -> None:
    named = [("grpc.ssl_target_name_override", NAME)]
    credentials = grpc.ssl_channel_credentials(ca.read_bytes())
    async with grpc.aio.secure_channel(gateway.grpc_target, credentials, options=named) as channel:
        client = Client(channel, gateway.key)
        assert not (await client.adapters.List(ListAdaptersRequest(), metadata=client.metadata)).data
    async with grpc.aio.insecure_channel(gateway.grpc_target) as channel:
        client = Client(channel, gateway.key)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await client.adapters.List(ListAdaptersRequest(), metadata=client.metadata, timeout=10)
    assert refused.value.code() == grpc.StatusCode.UNAVAILABLE


async def test_workers_that_share_a_listener_speak_tls(tmp_path: Path) -> None:
    """And a client that does not is no reason to stop accepting."""
    cert, key, _ = server_files(tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(cert, key)
    accepted: asyncio.Queue[asyncio.BaseTransport] = asyncio.Queue()

    class Connection(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            accepted.put_nowait(transport)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        acceptor = Acceptor(listener, Connection, lambda: 0, lambda: tls)
        address = listener.getsockname()
        reader, plain = await asyncio.open_connection(*address)
        plain.write(b"GET / HTTP/1.1\r\n\r\n")
        await reader.read()
        plain.close()
        _, writer = await asyncio.open_connection(*address, ssl=ClientTls(cert).context())
        transport = await accepted.get()
        assert transport.get_extra_info("cipher") is not None
        writer.close()
        transport.close()
        acceptor.close()
        await acceptor.wait_closed()
