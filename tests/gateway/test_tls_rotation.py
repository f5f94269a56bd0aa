"""Certificates that are replaced while the ports serve: by files that cannot be used, and under clients of the same
machine. That streams go on at all ports is tested in tests/attacks/test_tls.py."""

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from certificates import Authority, presented
from tokenizers import Tokenizer

from loragate.engine.server_tls import TlsFiles
from loragate.gateway.connections.tls import ClientTls
from loragate.panel.api import Api, Unreachable
from tests.gateway.gateway_setup import new_config, new_tenants, stub_engine
from tests.gateway.running_gateway import Gateway, serving

NAME = "gateway.example"


@dataclass
class Served:
    """A gateway with TLS, and the authority that issues its certificates."""

    gateway: Gateway
    authority: Authority
    files: TlsFiles

    def rotate(self) -> str:
        """Put a new certificate in the files' place, as an ACME client does; return it in PEM form."""
        new = [each.with_name(f"{each.name}.new") for each in (self.files.cert, self.files.key)]
        self.authority.write(new[0], new[1], NAME)
        for draft, file in zip(new, (self.files.cert, self.files.key), strict=True):
            draft.replace(file)
        return self.files.cert.read_text()

    async def presented(self) -> list[str]:
        """Return the certificates that the HTTP and the gRPC port present to a new connection, in PEM form."""
        ports = (self.gateway.base_url.removeprefix("https://"), self.gateway.grpc_target)
        return [await asyncio.to_thread(presented, each) for each in ports]


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


@pytest.mark.parametrize("broken", ["empty", "another key", "no file", "half a certificate"])
async def test_a_broken_file_leaves_the_old_certificate_in_service(
    served: Served, broken: str, caplog: pytest.LogCaptureFixture
) -> None:
    old = served.files.cert.read_text()
    if broken == "another key":
        served.files.key.write_bytes(served.authority.issue(NAME)[1])
    elif broken == "no file":
        served.files.cert.unlink()
    else:
        served.files.cert.write_bytes(b"" if broken == "empty" else old[: len(old) // 2].encode())
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
