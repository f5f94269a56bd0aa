"""Certificates that must be rejected, of servers and of clients, and certificates that change under open streams: at
each port of a server that serves only clients with a certificate."""

import itertools
import json
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Protocol

import grpc
import httpx
import pytest
from certificates import Authority, presented

from loragate.cli.client.http.api import Api, ConnectionFailed
from loragate.cli.data_dir.client_certificate import with_client_certificate
from loragate.cli.settings.load import load
from loragate.engine.server_tls import TlsFiles
from loragate.gateway.connections import acceptor
from loragate.gateway.connections.tls import ClientTls
from loragate.v1.adapters_pb2 import ListAdaptersRequest
from loragate.v1.adapters_pb2_grpc import AdapterServiceStub
from loragate.v1.inference_pb2 import ChatRequest
from loragate.v1.inference_pb2_grpc import InferenceServiceStub
from tests.gateway.running_gateway import ADMIN_KEY
from tests.gateway.tiny_model import MODEL_ID
from tests.panel.page_socket import open_page, page_socket, sign_in
from tests.panel.world import GatewayThread, Panel

NAME = "localhost"
ANSWER = "the answer"
MESSAGES = [{"role": "user", "content": "?"}]
WAIT_SECONDS = 60


class Server:
    """A gateway and a panel with one certificate, and the authorities of servers and of clients."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.client_ca = folder / "clients.pem"
        self.client_ca.write_bytes(Authority().pem)
        own = with_client_certificate(load(tls_client_ca=self.client_ca, data_dir=folder)).client_cert
        assert own is not None
        self.own_client = own
        self.files = TlsFiles(folder / "tls.pem", folder / "tls.key", self.client_ca, own)
        self._numbers = itertools.count()
        self.reset()
        self.gateway = GatewayThread(folder, tls=self.files)
        self.gateway.response = ANSWER

    def reset(self) -> None:
        """Install a valid certificate, and trust one authority of clients."""
        self.servers, self.clients = Authority(), Authority()
        self.install(self.servers, NAME)
        self.trust(self.clients)

    def install(self, authority: Authority, *names: str, days: tuple[float, float] = (-1, 90)) -> None:
        """Put a new certificate in the files' place, as an ACME client does."""
        drafts = [each.with_name(f"{each.name}.new") for each in (self.files.cert, self.files.key)]
        authority.write(drafts[0], drafts[1], *names, days=days)
        for draft, file in zip(drafts, (self.files.cert, self.files.key), strict=True):
            draft.replace(file)

    def trust(self, *clients: Authority) -> None:
        """Let these authorities, and no others, issue certificates of clients."""
        self.client_ca.write_bytes(b"".join(each.pem for each in clients))

    def client(self, issuer: Authority | None = None, days: tuple[float, float] = (-1, 90)) -> Path:
        """Return the file of a new client certificate with its key, which no test has had before."""
        file = self.folder / f"client-{next(self._numbers)}.pem"
        (issuer or self.clients).write(file, file, "batch-jobs", days=days)
        return file

    @cached_property
    def panel(self) -> Panel:
        files = {"tls_cert": self.files.cert, "tls_key": self.files.key, "tls_client_ca": self.client_ca}
        files |= {"client_cert": self.own_client, "panel__gateway_cert": self.files.cert}
        settings = {name: str(file) for name, file in files.items()}
        return Panel(self.folder, panel__gateway_url=self.gateway.url, **settings)

    def close(self) -> None:
        if "panel" in self.__dict__:
            self.panel.close()
        self.gateway.close()


@pytest.fixture(scope="module")
def server_of_module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with closing(Server(tmp_path_factory.mktemp("server"))) as started:
        yield started


@pytest.fixture
def server(server_of_module: Server) -> Server:
    """The server, which all tests of this file share, with new certificates."""
    server_of_module.reset()
    return server_of_module


class Rejected(Exception):
    """One end rejects the other's certificate."""


class Client(Protocol):
    """A client of one port, which trusts the authority of servers, and shows the certificate in a PEM file."""

    address: str

    def __init__(self, server: Server, shown: Path | None) -> None: ...

    def call(self) -> None:
        """Call something over a new connection. Raise Rejected."""

    def stream(self) -> AbstractContextManager[Callable[[], bool]]:
        """Open a stream over a new connection. Yield what returns whether the rest of it arrives."""


class RestClient:
    def __init__(self, server: Server, shown: Path | None) -> None:
        self._server = server
        self._shown = shown
        self.address = self._address()
        self._verify = ssl.create_default_context(cadata=server.servers.pem.decode())
        if shown is not None:
            self._verify.load_cert_chain(shown)

    def _address(self) -> str:
        return self._server.gateway.url.removeprefix("https://")

    def call(self) -> None:
        with self._http() as http:
            try:
                assert http.get("/healthz").is_success
            except httpx.TransportError as error:
                raise Rejected(str(error)) from None

    @contextmanager
    def stream(self) -> Iterator[Callable[[], bool]]:
        gateway = self._server.gateway
        body = {"model": MODEL_ID, "messages": MESSAGES, "stream": True}
        headers = {"authorization": f"Bearer {gateway.running.key}"}
        with self._http() as http, http.stream("POST", "/v1/chat/completions", json=body, headers=headers) as response:
            events = (line.removeprefix("data: ") for line in response.iter_lines() if line)
            begun = next(events)

            def rest_arrives() -> bool:
                gateway.resume()
                return said([begun, *events]) == ANSWER

            yield rest_arrives

    @property
    def _url(self) -> str:
        return f"https://{NAME}:{self.address.rpartition(':')[2]}"

    def _http(self) -> httpx.Client:
        return httpx.Client(base_url=self._url, verify=self._verify, trust_env=False, timeout=WAIT_SECONDS)


def said(events: list[str]) -> str:
    """Return the text of a stream's events, which is complete."""
    *chunks, done = events
    assert done == "[DONE]"
    choices = [choice for chunk in chunks for choice in json.loads(chunk)["choices"]]
    return "".join(choice["delta"].get("content") or "" for choice in choices)


class Commands(RestClient):
    """The client of commands, which trust whom the system trusts."""

    def call(self) -> None:
        trusted = self._server.folder / "ca.pem"
        trusted.write_bytes(self._server.servers.pem)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SSL_CERT_FILE", str(trusted))
            with Api(self._url, ADMIN_KEY, ClientTls(client_cert=self._shown)) as api:
                try:
                    api.call("GET", "/admin/v1/tenants")
                except ConnectionFailed as error:
                    raise Rejected(error.message) from None


class PanelClient(RestClient):
    """A browser, whose stream is a page's WebSocket."""

    def _address(self) -> str:
        return self._server.panel.address

    @contextmanager
    def stream(self) -> Iterator[Callable[[], bool]]:
        with self._http() as browser:
            sign_in(browser, self._server.gateway.running.key)
            with page_socket(browser, open_page(browser), self._verify) as page:
                assert page.responds()
                yield page.responds


class GrpcClient:
    def __init__(self, server: Server, shown: Path | None) -> None:
        self._gateway = server.gateway
        self.address = self._gateway.running.grpc_target
        pem = None if shown is None else shown.read_bytes()
        self._credentials = grpc.ssl_channel_credentials(server.servers.pem, pem, pem)
        self._metadata = [("authorization", f"Bearer {server.gateway.running.key}")]

    def call(self) -> None:
        with self._channel() as channel:
            try:
                AdapterServiceStub(channel).List(ListAdaptersRequest(), metadata=self._metadata, timeout=WAIT_SECONDS)
            except grpc.RpcError as error:
                if error.code() != grpc.StatusCode.UNAVAILABLE:
                    raise
                raise Rejected(error.details()) from None

    @contextmanager
    def stream(self) -> Iterator[Callable[[], bool]]:
        with self._channel() as channel:
            request = ChatRequest(model=MODEL_ID, messages=MESSAGES)
            chunks = InferenceServiceStub(channel).ChatStream(request, metadata=self._metadata, timeout=WAIT_SECONDS)
            begun = next(chunks).text

            def rest_arrives() -> bool:
                self._gateway.resume()
                return begun + "".join(chunk.text for chunk in chunks) == ANSWER

            yield rest_arrives

    def _channel(self) -> grpc.Channel:
        # With connections of its own: channels of a process share those whose options are the same.
        options = [("grpc.ssl_target_name_override", NAME), ("grpc.use_local_subchannel_pool", 1)]
        return grpc.secure_channel(self.address, self._credentials, options=[*options, ("grpc.enable_retries", 0)])


each_port = pytest.mark.parametrize("port", [RestClient, GrpcClient, PanelClient])


@pytest.mark.parametrize("client", [RestClient, Commands, GrpcClient, PanelClient])
@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ("expired", "certificate has expired"),
        ("of another name", "Hostname"),
        ("without a name", "Hostname"),
        ("of an unknown authority", "unable to get local issuer certificate"),
    ],
)
def test_clients_reject_a_server_whose_certificate_is_not_valid(
    server: Server, client: type[Client], wrong: str, reason: str
) -> None:
    caller = client(server, server.client())
    issuer = Authority() if wrong == "of an unknown authority" else server.servers
    names = {"of another name": ["other.example"], "without a name": []}.get(wrong, [NAME])
    server.install(issuer, *names, days=(-2, -1) if wrong == "expired" else (-1, 1))
    with pytest.raises(Rejected, match=reason):
        caller.call()
    server.install(server.servers, NAME)
    caller.call()


@each_port
@pytest.mark.parametrize("wrong", ["missing", "expired", "of the future", "of an unknown authority", "of a server"])
def test_only_clients_with_a_valid_certificate_are_served(server: Server, port: type[Client], wrong: str) -> None:
    days = {"expired": (-2.0, -1.0), "of the future": (1.0, 2.0)}.get(wrong, (-1.0, 1.0))
    issuer = {"of an unknown authority": Authority(), "of a server": server.servers}.get(wrong)
    with pytest.raises(Rejected):
        port(server, None if wrong == "missing" else server.client(issuer, days)).call()
    port(server, server.client()).call()


def test_commands_of_the_same_machine_have_a_certificate_and_others_are_asked_for_one(server: Server) -> None:
    with Api(server.gateway.url, ADMIN_KEY, ClientTls(server.files.cert, server.own_client)) as own:
        assert len(list(own.list_all("/admin/v1/tenants"))) == 2
    another = Api(server.gateway.url, ADMIN_KEY, ClientTls(server.files.cert))
    with another, pytest.raises(ConnectionFailed, match="LORAGATE_CLIENT_CERT"):
        another.call("GET", "/admin/v1/tenants")


@each_port
def test_a_stream_goes_on_when_the_servers_certificate_changes(server: Server, port: type[Client]) -> None:
    client = port(server, server.client())
    server.gateway.hold_after(1)
    with client.stream() as rest_arrives:
        before = presented(client.address)
        server.install(server.servers, NAME)
        assert before != presented(client.address) == server.files.cert.read_text()
        client.call()
        assert rest_arrives()


@each_port
def test_a_stream_goes_on_when_the_authority_of_clients_changes(server: Server, port: type[Client]) -> None:
    """During the change, new clients may have a certificate of either."""
    another = Authority()
    of_old, of_new = port(server, server.client()), port(server, server.client(another))
    with pytest.raises(Rejected):
        of_new.call()
    server.gateway.hold_after(1)
    with of_old.stream() as rest_arrives:
        server.trust(server.clients, another)
        of_old.call()
        of_new.call()
        server.trust(another)
        with pytest.raises(Rejected):
            of_old.call()
        of_new.call()
        assert rest_arrives()


def test_clients_that_do_not_finish_the_handshake_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest ones make room, so that others are served."""
    monkeypatch.setattr(acceptor, "_MAX_HANDSHAKES", 4)
    with closing(Server(tmp_path)) as server, ExitStack() as stack:
        client = RestClient(server, server.client())
        host, _, port = client.address.rpartition(":")
        silent = [stack.enter_context(socket.create_connection((host, int(port)), WAIT_SECONDS)) for _ in range(6)]
        assert [each.recv(1) for each in silent[:2]] == [b"", b""]
        client.call()
