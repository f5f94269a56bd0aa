"""Certificates that are replaced while the ports serve: open streams go on, new connections get the new one."""

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import grpc
import grpc.aio
import pytest
from certificates import Authority
from tokenizers import Tokenizer

from loragate.engine.server_tls import TlsFiles
from loragate.gateway.connections.tls import ClientTls
from loragate.panel.api import Api, Unreachable
from loragate.v1.inference_pb2 import ChatRequest
from tests.gateway.gateway_setup import new_config, new_tenants, stub_engine
from tests.gateway.grpc_client import Client
from tests.gateway.running_gateway import Gateway, serving
from tests.gateway.tiny_model import MODEL_ID

NAME = "gateway.example"


@dataclass
class Served:
    """A gateway with TLS, and the authority that issues its certificates."""

    gateway: Gateway
    authority: Authority
    files: TlsFiles

    def rotate(self) -> bytes:
        """Put a new certificate in the files' place, as an ACME client does; return it in DER form."""
        new = [each.with_name(f"{each.name}.new") for each in (self.files.cert, self.files.key)]
        self.authority.write(new[0], new[1], NAME)
        for draft, file in zip(new, (self.files.cert, self.files.key), strict=True):
            draft.replace(file)
        return der(self.files.cert)

    async def presented(self) -> list[bytes]:
        """Return the certificates that the HTTP and the gRPC port present to a new connection, in DER form."""
        return [await presented(url) for url in (self.gateway.base_url, f"https://{self.gateway.grpc_target}")]


@pytest.fixture
async def served(tokenizer: Tokenizer, tmp_path: Path) -> AsyncIterator[Served]:
    authority, files = Authority(), TlsFiles(tmp_path / "tls.pem", tmp_path / "tls.key")
    authority.write(files.cert, files.key, NAME)
    async with stub_engine(tokenizer) as engine:
        config = replace(await new_config(tmp_path, engine), tls=files)
        async with serving(config, engine, await new_tenants(config)) as gateway:
            await gateway.until_ready()
            yield Served(gateway, authority, files)
            engine.resume.set()


async def test_streams_go_on_and_new_connections_get_the_new_certificate(served: Served) -> None:
    gateway = served.gateway
    old = der(served.files.cert)
    assert await served.presented() == [old, old]
    gateway.engine.respond_with("the answer")
    gateway.engine.pause_after = 1
    async with gateway.openai() as rest, grpc_client(served) as client:
        chat = await rest.chat.completions.create(
            model=MODEL_ID, messages=[{"role": "user", "content": "?"}], stream=True
        )
        call = client.inference.ChatStream(chat_request(), metadata=client.metadata)
        events, chunks = aiter(chat), aiter(call)
        begun = await anext(events), await anext(chunks)
        await gateway.engine.paused.wait()
        new = served.rotate()
        assert await served.presented() == [new, new] != [old, old]
        gateway.engine.resume.set()
        texts = [begun[0], *[event async for event in events]]
        assert "".join(chunk.choices[0].delta.content or "" for chunk in texts if chunk.choices) == "the answer"
        assert "".join([begun[1].text, *[chunk.text async for chunk in chunks]]) == "the answer"


@pytest.mark.parametrize("broken", ["empty", "another key", "no file", "half a certificate"])
async def test_a_broken_file_leaves_the_old_certificate_in_service(
    served: Served, broken: str, caplog: pytest.LogCaptureFixture
) -> None:
    old, pem = der(served.files.cert), served.files.cert.read_bytes()
    if broken == "another key":
        served.files.key.write_bytes(served.authority.issue(NAME)[1])
    elif broken == "no file":
        served.files.cert.unlink()
    else:
        served.files.cert.write_bytes(b"" if broken == "empty" else pem[: len(pem) // 2])
    with caplog.at_level(logging.ERROR, "loragate.engine.server_tls"):
        assert await served.presented() == [old, old]
        assert await served.presented() == [old, old]
    assert [str(served.files.cert) in record.getMessage() for record in caplog.records] == [True, True]  # once a port
    new = served.rotate()
    assert await served.presented() == [new, new]


async def test_a_client_of_the_same_machine_accepts_the_new_certificate(served: Served) -> None:
    """The panel's clients live for as long as its sessions. They accept the old one, too, which is served on if the new
    one is broken."""
    api = Api(served.gateway.base_url, served.gateway.key, ClientTls(served.files.cert))
    other = Api(served.gateway.base_url, served.gateway.key, ClientTls(await another_certificate(served)))
    try:
        with pytest.raises(Unreachable):
            await other.get("/v1/models")
        await api.get("/v1/models")
        for requests, change in ((2, served.rotate), (3, lambda: served.files.cert.write_bytes(b"broken"))):
            change()
            # One request more than there are idle connections, so that one opens a connection.
            await asyncio.gather(*(api.get("/v1/models") for _ in range(requests)))
    finally:
        await api.close()
        await other.close()


async def another_certificate(served: Served) -> Path:
    """Signed by the same authority for the same name."""
    file = served.files.cert.with_name("another.pem")
    served.authority.write(file, file, NAME)
    return file


def chat_request() -> ChatRequest:
    return ChatRequest(model=MODEL_ID, messages=[{"role": "user", "content": "?"}])


@asynccontextmanager
async def grpc_client(served: Served) -> AsyncIterator[Client]:
    credentials = grpc.ssl_channel_credentials(served.authority.pem)
    named = [("grpc.ssl_target_name_override", NAME)]
    async with grpc.aio.secure_channel(served.gateway.grpc_target, credentials, options=named) as channel:
        yield Client(channel, served.gateway.key)


def der(cert: Path) -> bytes:
    return ssl.PEM_cert_to_DER_cert(cert.read_text())


async def presented(url: str) -> bytes:
    anything = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anything.check_hostname = False
    anything.verify_mode = ssl.CERT_NONE
    anything.set_alpn_protocols(["h2"])
    host, port = url.removeprefix("https://").split(":")
    _, writer = await asyncio.open_connection(host, int(port), ssl=anything)
    found: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return found
