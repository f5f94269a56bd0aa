"""Who may call the engine, and on which addresses it listens."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import grpc
import grpc.aio
import pytest
from certificates import server_files
from ports import free_port

from loragate.cli.setup.certificates import CertificateFolder
from loragate.engine.client.errors import EngineUnavailable
from loragate.engine.client.grpc_client import GrpcEngineClient
from loragate.engine.config import EngineConfig
from loragate.engine.link_security import MAX_PREVIOUS_SECRETS, PREVIOUS_METADATA_KEY, LinkTls, metadata_of
from loragate.engine.server.access import SecretRequired, check_access, listen
from loragate.v1 import engine_pb2 as pb
from loragate.v1 import engine_pb2_grpc as pb_grpc
from tests.engine.client.test_heartbeat import NoAdapters

SECRET = "the secret of the link"


class Described(pb_grpc.EngineServiceServicer):
    async def Describe(self, request: pb.DescribeRequest, context: object) -> pb.Manifest:
        return pb.Manifest(model_id="mine")


@asynccontextmanager
async def served(config: EngineConfig) -> AsyncIterator[None]:
    check_access(config)
    server = grpc.aio.server(interceptors=[SecretRequired(config.secret, config.previous_secrets)])
    pb_grpc.add_EngineServiceServicer_to_server(Described(), server)
    listen(server, config)
    await server.start()
    try:
        yield
    finally:
        await server.stop(None)


async def model_id(target: str, secret: str, tls: LinkTls | None = None, previous: tuple[str, ...] = ()) -> str:
    client = GrpcEngineClient(target, NoAdapters(), secret=secret, previous_secrets=previous, tls=tls)
    await client.start()
    try:
        return (await client.describe()).model_id
    finally:
        await client.close()


@pytest.mark.parametrize("listens", ["0.0.0.0:50100", "[::]:50100", "10.0.0.1:50100", "gpu-1:50100", ":50100"])
def test_addresses_beyond_this_machine_need_tls(tmp_path: Path, listens: str) -> None:
    config = EngineConfig("model", listens, tmp_path, secret=SECRET)
    with pytest.raises(ValueError, match="LORAGATE_TLS_CERT"):
        check_access(config)
    tls = replace(config, tls_cert=tmp_path / "cert", tls_key=tmp_path / "key")
    with pytest.raises(ValueError, match="LORAGATE_TLS_CLIENT_CA"):
        check_access(tls)
    check_access(replace(tls, tls_client_ca=tmp_path / "ca"))


@pytest.mark.parametrize("listens", ["unix:/run/engine.sock", "127.0.0.1:50100", "localhost:50100", "[::1]:50100"])
def test_this_machine_needs_a_secret_only(tmp_path: Path, listens: str) -> None:
    config = EngineConfig("model", listens, tmp_path, secret=SECRET)
    check_access(config)
    with pytest.raises(ValueError, match="LORAGATE_ENGINE_SECRET"):
        check_access(replace(config, secret=""))
    with pytest.raises(ValueError, match="belong together"):
        check_access(replace(config, tls_cert=tmp_path / "cert"))


async def test_the_link_over_tls(tmp_path: Path) -> None:
    cert, key, ca = server_files(tmp_path)
    (tmp_path / "other").mkdir()
    _, _, other_ca = server_files(tmp_path / "other")
    target = f"localhost:{free_port()}"
    config = EngineConfig("model", target, tmp_path, secret=SECRET, tls_cert=cert, tls_key=key)
    async with served(config):
        assert await model_id(target, SECRET, LinkTls(ca)) == "mine"
        with pytest.raises(EngineUnavailable, match="UNAUTHENTICATED"):
            await model_id(target, "another", LinkTls(ca))
        for trusted in (LinkTls(other_ca), None):
            with pytest.raises(EngineUnavailable, match="UNAVAILABLE"):
                await model_id(target, SECRET, trusted)


async def test_the_link_over_a_unix_socket(tmp_path: Path) -> None:
    config = EngineConfig("model", f"unix:{tmp_path}/e.sock", tmp_path, secret=SECRET)
    async with served(config):
        assert await model_id(config.listen, SECRET) == "mine"
        with pytest.raises(EngineUnavailable, match="UNAUTHENTICATED"):
            await model_id(config.listen, "")


@pytest.mark.parametrize("engine", [("old",), ("new", "old"), ("old", "new"), ("new",)])
@pytest.mark.parametrize("gateway", [("old",), ("new", "old"), ("old", "new"), ("new",)])
async def test_secrets_are_rotated_on_both_ends_in_any_order(
    tmp_path: Path, engine: tuple[str, ...], gateway: tuple[str, ...]
) -> None:
    config = EngineConfig("model", f"unix:{tmp_path}/e.sock", tmp_path, secret=engine[0], previous_secrets=engine[1:])
    async with served(config):
        if set(engine) & set(gateway):
            assert await model_id(config.listen, gateway[0], previous=gateway[1:]) == "mine"
        else:
            with pytest.raises(EngineUnavailable, match="UNAUTHENTICATED"):
                await model_id(config.listen, gateway[0], previous=gateway[1:])


async def test_guesses_are_few(tmp_path: Path) -> None:
    """A call cannot try thousands of secrets at once."""
    config = EngineConfig("model", f"unix:{tmp_path}/e.sock", tmp_path, secret=SECRET)
    guesses = [(PREVIOUS_METADATA_KEY, str(number)) for number in range(MAX_PREVIOUS_SECRETS)]
    async with served(config), grpc.aio.insecure_channel(config.listen) as channel:
        service = pb_grpc.EngineServiceStub(channel)
        within = (*metadata_of("guess"), *guesses[1:], (PREVIOUS_METADATA_KEY, SECRET))
        assert (await service.Describe(pb.DescribeRequest(), metadata=within)).model_id == "mine"
        for beyond in ((*metadata_of("guess"), *guesses, (PREVIOUS_METADATA_KEY, SECRET)), guesses[:1]):
            with pytest.raises(grpc.aio.AioRpcError, match="UNAUTHENTICATED"):
                await service.Describe(pb.DescribeRequest(), metadata=beyond)


async def test_a_certificate_is_renewed_while_the_engine_runs(tmp_path: Path) -> None:
    cert, key, ca = server_files(tmp_path)
    target = f"localhost:{free_port()}"
    config = EngineConfig("model", target, tmp_path, secret=SECRET, tls_cert=cert, tls_key=key)
    async with served(config):
        assert await model_id(target, SECRET, LinkTls(ca)) == "mine"
        server_files(tmp_path)  # the same files, of another authority
        assert await model_id(target, SECRET, LinkTls(ca)) == "mine"


def linked(folder: Path, target: str) -> tuple[CertificateFolder, EngineConfig, LinkTls]:
    """Return the certificates of a link, and the settings of its two ends."""
    files = CertificateFolder(folder / "certs")
    files.make_authority()
    files.issue("client", ["loragate-client"], days=1, server=False)
    files.issue("localhost", ["localhost"], days=1, server=True)
    ca, cert, key = files.cert("ca"), files.cert("localhost"), files.key("localhost")
    config = EngineConfig("model", target, folder, secret=SECRET, tls_cert=cert, tls_key=key, tls_client_ca=ca)
    return files, config, LinkTls(ca, files.cert("client"), files.key("client"))


async def test_clients_need_a_certificate_of_the_authority(tmp_path: Path) -> None:
    target = f"localhost:{free_port()}"
    files, config, tls = linked(tmp_path, target)
    (tmp_path / "other").mkdir()
    other, _, others = linked(tmp_path / "other", target)
    async with served(config):
        assert await model_id(target, SECRET, tls) == "mine"
        with pytest.raises(EngineUnavailable, match="UNAUTHENTICATED"):
            await model_id(target, "another", tls)
        without = LinkTls(tls.ca)
        foreign = replace(others, ca=tls.ca)  # signed by another authority
        of_a_server = LinkTls(tls.ca, files.cert("localhost"), files.key("localhost"))  # for another use
        for rejected in (without, foreign, of_a_server):
            with pytest.raises(EngineUnavailable, match="UNAVAILABLE"):
                await model_id(target, SECRET, rejected)
        with pytest.raises(EngineUnavailable, match="UNAVAILABLE"):
            await model_id(target, SECRET, replace(tls, ca=other.cert("ca")))


async def connected_again(client: GrpcEngineClient) -> None:
    """Wait until the client reaches its restarted engine."""
    async with asyncio.timeout(30):
        while True:
            with suppress(EngineUnavailable):
                assert (await client.describe()).model_id == "mine"
                return
            await asyncio.sleep(0.05)


async def test_certificates_of_both_ends_are_renewed_while_a_session_is_open(tmp_path: Path) -> None:
    target = f"localhost:{free_port()}"
    files, config, tls = linked(tmp_path, target)
    client = GrpcEngineClient(target, NoAdapters(), secret=SECRET, tls=tls)
    async with served(config):
        await client.start()
        assert (await client.describe()).model_id == "mine"
        for name in ("ca.pem", "ca.key"):
            (files.folder / name).unlink()
        linked(tmp_path, target)  # the same files, of another authority
        assert (await client.describe()).model_id == "mine", "the open connection stays"
        assert await model_id(target, SECRET, tls) == "mine"
    async with served(config):  # after a restart the client connects again, with the files as they are now
        await connected_again(client)
    await client.close()


async def test_while_files_cannot_be_used_a_client_keeps_its_certificate(tmp_path: Path) -> None:
    target = f"localhost:{free_port()}"
    files, config, tls = linked(tmp_path, target)
    client = GrpcEngineClient(target, NoAdapters(), secret=SECRET, tls=tls)
    async with served(config):
        await client.start()
        assert (await client.describe()).model_id == "mine"
        files.key("client").unlink()
    async with served(config):
        await connected_again(client)
        await asyncio.sleep(0.5)  # in which it tries to open a session again
        assert client._runner is not None
        assert not client._runner.done(), "it still connects"
    await client.close()
