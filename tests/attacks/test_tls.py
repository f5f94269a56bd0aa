"""Certificates that must be rejected, of servers and of clients."""

import asyncio
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
from tokenizers import Tokenizer

from loragate.cli.client.http.api import Api, ConnectionFailed
from loragate.cli.data_dir.client_certificate import with_client_certificate
from loragate.cli.settings.load import load
from loragate.engine.server_tls import TlsFiles
from loragate.gateway.connections import acceptor
from loragate.gateway.connections.tls import ClientTls
from loragate.v1.adapters_pb2 import ListAdaptersRequest
from tests.gateway.gateway_setup import new_config, new_tenants, stub_engine
from tests.gateway.grpc_client import Client
from tests.gateway.running_gateway import ADMIN_KEY, Gateway, serving


@dataclass
class Guarded:
    """A gateway that serves only clients with a certificate, and those who may issue certificates."""

    gateway: Gateway
    servers: Authority
    clients: Authority
    files: TlsFiles

    @property
    def url(self) -> str:
        return self.gateway.base_url.replace("127.0.0.1", "localhost")

    def trusting(self) -> ssl.SSLContext:
        return ssl.create_default_context(cadata=self.servers.pem.decode())


@asynccontextmanager
async def guarded(tokenizer: Tokenizer, folder: Path) -> AsyncIterator[Guarded]:
    servers, clients = Authority(), Authority()
    ca = folder / "clients.pem"
    ca.write_bytes(clients.pem)
    own = with_client_certificate(load(tls_client_ca=ca, data_dir=folder)).client_cert
    files = TlsFiles(folder / "tls.pem", folder / "tls.key", ca, own)
    servers.write(files.cert, files.key, "localhost")
    async with stub_engine(tokenizer) as engine:
        config = replace(await new_config(folder, engine), tls=files)
        async with serving(config, engine, await new_tenants(config)) as gateway:
            yield Guarded(gateway, servers, clients, files)


async def test_only_clients_with_a_valid_certificate_are_served(tokenizer: Tokenizer, tmp_path: Path) -> None:
    async with guarded(tokenizer, tmp_path) as server:
        shown = {
            "signed": server.clients.issue("batch-jobs"),
            "missing": None,
            "of an unknown authority": Authority().issue("batch-jobs"),
            "of the authority of servers": server.servers.issue("batch-jobs"),
            "expired": server.clients.issue("batch-jobs", days=(-2, -1)),
            "of the future": server.clients.issue("batch-jobs", days=(1, 2)),
        }
        served = {name: await over_both(server, pair, tmp_path / "shown.pem") for name, pair in shown.items()}
        assert served == {name: (name == "signed", name == "signed") for name in shown}
        assert server.files.own_client is not None
        with Api(server.gateway.base_url, ADMIN_KEY, ClientTls(server.files.cert, server.files.own_client)) as own:
            assert len(await asyncio.to_thread(lambda: list(own.list_all("/admin/v1/tenants")))) == 2
        without = Api(server.gateway.base_url, ADMIN_KEY, ClientTls(server.files.cert))
        with without, pytest.raises(ConnectionFailed):
            await asyncio.to_thread(without.call, "GET", "/admin/v1/tenants")


async def over_both(server: Guarded, pair: tuple[bytes, bytes] | None, file: Path) -> tuple[bool, bool]:
    """Return whether a client with this certificate and key is served over HTTP, and over gRPC."""
    context = server.trusting()
    if pair is not None:
        file.write_bytes(pair[0] + pair[1])
        context.load_cert_chain(file)
    return await is_served_http(server, context), await is_served_grpc(server, pair)


async def is_served_http(server: Guarded, context: ssl.SSLContext) -> bool:
    try:
        async with httpx.AsyncClient(verify=context, trust_env=False, timeout=30) as http:
            return (await http.get(f"{server.url}/healthz")).is_success
    except httpx.TransportError:
        return False


async def is_served_grpc(server: Guarded, pair: tuple[bytes, bytes] | None) -> bool:
    cert, key = pair or (None, None)
    credentials = grpc.ssl_channel_credentials(server.servers.pem, key, cert)
    named = [("grpc.ssl_target_name_override", "localhost"), ("grpc.enable_retries", 0)]
    async with grpc.aio.secure_channel(server.gateway.grpc_target, credentials, options=named) as channel:
        client = Client(channel, server.gateway.key)
        try:
            await client.adapters.List(ListAdaptersRequest(), metadata=client.metadata, timeout=30)
        except grpc.aio.AioRpcError as error:
            if error.code() != grpc.StatusCode.UNAVAILABLE:
                raise
            return False
    return True


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ("expired", "certificate has expired"),
        ("of another name", "Hostname mismatch"),
        ("of an unknown authority", "unable to get local issuer certificate"),
        ("without a name", "Hostname mismatch"),
    ],
)
async def test_commands_reject_a_server_whose_certificate_is_not_valid(
    wrong: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They send no key, and say why."""
    authority, chain = Authority(), tmp_path / "tls.pem"
    issuer = Authority() if wrong == "of an unknown authority" else authority
    names = {"of another name": ["other.example"], "without a name": []}.get(wrong, ["localhost"])
    issuer.write(chain, chain, *names, days=(-2, -1) if wrong == "expired" else (-1, 1))
    (tmp_path / "ca.pem").write_bytes(authority.pem)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    received = bytearray()

    async def read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.extend(await reader.read())
        writer.close()

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain)
    async with await asyncio.start_server(read, "127.0.0.1", 0, ssl=context) as server:
        url = f"https://localhost:{server.sockets[0].getsockname()[1]}"
        api = Api(url, ADMIN_KEY, ClientTls(client_cert=chain))  # with a context of its own, made after setenv
        with api, pytest.raises(ConnectionFailed, match=reason):
            await asyncio.to_thread(api.call, "GET", "/admin/v1/tenants")
    assert not received


async def test_clients_that_do_not_finish_the_handshake_are_bounded(
    tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest ones make room, so that others are served."""
    monkeypatch.setattr(acceptor, "_MAX_HANDSHAKES", 4)
    async with guarded(tokenizer, tmp_path) as server:
        address = server.gateway.base_url.removeprefix("https://").split(":")
        silent = [await asyncio.open_connection(*address) for _ in range(6)]
        closed = await asyncio.gather(*(reader.read() for reader, _ in silent[:2]))
        assert closed == [b"", b""]
        shown = server.clients.issue("batch-jobs")
        assert await over_both(server, shown, tmp_path / "shown.pem") == (True, True)
        for _, writer in silent:
            writer.close()
