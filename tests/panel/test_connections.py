"""What strangers may keep open at the panel's port, before any sign-in: a real panel with few connections and little
patience."""

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import ClientConnection, connect

from tests.panel.world import Panel

MAX_CONNECTIONS = 150
STALL_SECONDS = 1.0
PATIENCE = 60
SOCKET_QUERY = "EIO=4&transport=websocket&client_id=x"


@pytest.fixture(scope="module")
def panel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Panel]:
    """It needs no gateway, because no user signs in."""
    limits = {"panel__max_connections": str(MAX_CONNECTIONS), "panel__stall_seconds": str(STALL_SECONDS)}
    started = Panel(tmp_path_factory.mktemp("panel"), panel__gateway_url="http://127.0.0.1:1", **limits)
    yield started
    started.close()


def opened(panel: Panel) -> socket.socket:
    host, _, port = panel.url.removeprefix("http://").rpartition(":")
    connection = socket.create_connection((host, int(port)))
    connection.settimeout(PATIENCE)
    return connection


def is_closed(connection: socket.socket) -> bool:
    """Wait for the end of a connection that was closed or reset; false where something else arrives first."""
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


def received(connection: socket.socket) -> bytes:
    """All that arrives until the connection is closed or reset."""
    found = b""
    with suppress(ConnectionError):
        while piece := connection.recv(1 << 16):
            found += piece
    return found


def answer(connection: socket.socket) -> tuple[int, str]:
    """The status and the text of the only response."""
    head, _, body = received(connection).partition(b"\r\n\r\n")
    return int(head.split()[1]), body.decode()


def peak_bytes(panel: Panel) -> int:
    status = Path(f"/proc/{panel.process.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def test_a_flood_of_headers_ends_early_and_costs_little(panel: Panel) -> None:
    before = peak_bytes(panel)
    with closing(opened(panel)) as connection:
        with suppress(ConnectionError):
            connection.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n" + (b"x-flood: " + b"y" * 8000 + b"\r\n") * 2000)
        found = received(connection)
    assert found == b"" or found.startswith(b"HTTP/1.1 431 "), found[:100]
    assert peak_bytes(panel) - before < 8 << 20


def test_unfinished_heads_are_closed(panel: Panel) -> None:
    with ExitStack() as stack:
        connections = [stack.enter_context(closing(opened(panel))) for _ in range(50)]
        for connection in connections:
            connection.sendall(b"GET / HTTP/1.1\r\nHost:")
        assert all(map(is_closed, connections))


def test_idle_connections_make_room_for_others(panel: Panel) -> None:
    with ExitStack() as stack:
        idle = [stack.enter_context(closing(opened(panel))) for _ in range(2 * MAX_CONNECTIONS)]
        with panel.visitor() as browser:
            assert browser.get("/healthz").is_success
        assert is_closed(idle[0])


def test_a_body_that_drips_is_ended(panel: Panel) -> None:
    head = f"POST /sign-in HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: {panel.url}\r\nContent-Length: 100\r\n\r\nkey="
    with closing(opened(panel)) as connection:
        connection.sendall(head.replace(panel.url, "http://127.0.0.1").encode())
        status, text = answer(connection)
    assert (status, json.loads(text)["error"]["message"]) == (408, "The body arrived too slowly.")


@pytest.mark.parametrize("path", ["/sign-in", "/_nicegui_ws/socket.io/?EIO=4&transport=polling&client_id=x&sid=y"])
def test_a_large_body_is_not_read(panel: Panel, path: str) -> None:
    with panel.visitor(headers={"origin": panel.url}) as browser:
        assert browser.post(path, content=b"x" * (1 << 20)).status_code == 413


def handshake(panel: Panel) -> ClientConnection:
    url = f"{panel.url.replace('http', 'ws')}/_nicegui_ws/socket.io/?{SOCKET_QUERY}"
    return connect(url, open_timeout=PATIENCE, close_timeout=PATIENCE, proxy=None)


def test_sockets_are_let_through_but_few_of_strangers(panel: Panel) -> None:
    with ExitStack() as stack:
        for _ in range(64):
            socket_of_page = stack.enter_context(handshake(panel))
        assert str(socket_of_page.recv(PATIENCE)).startswith("0{"), "engine.io's first message"
        with pytest.raises(InvalidStatus) as refused:
            handshake(panel)
        assert refused.value.response.status_code == 403
        with panel.visitor() as browser:
            assert browser.get("/_nicegui_ws/socket.io/?EIO=4&transport=polling").status_code == 403
            assert browser.get("/sign-in").is_success


def test_other_upgrades_are_declined(panel: Panel) -> None:
    """What follows the body is no second request."""
    with closing(opened(panel)) as connection:
        connection.sendall(
            b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: upgrade, close\r\nUpgrade: h2c\r\n"
            b"Content-Length: 4\r\n\r\nbody"
        )
        assert answer(connection) == (200, '{"status":"ok"}')


@pytest.mark.parametrize(
    ("host", "status"),
    [("127.0.0.1", 200), ("[::1]:8001", 200), ("localhost", 200), (socket.gethostname(), 200), ("evil.example", 421)],
)
def test_only_the_panels_names(panel: Panel, host: str, status: int) -> None:
    with panel.visitor(headers={"host": host}) as browser:
        assert browser.get("/sign-in").status_code == status
