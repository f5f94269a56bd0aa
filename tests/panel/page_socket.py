"""A page of the panel without a browser: signing in, and the page's WebSocket, as NiceGUI's script uses it."""

import json
import re
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
from websockets.sync.client import ClientConnection, connect

WAIT_SECONDS = 60
_HANDSHAKE = "/_nicegui_ws/socket.io/?EIO=4&tab_id=t&document_id=d&next_message_id=0&implicit_handshake=true"


def sign_in(browser: httpx.Client, key: str) -> httpx.Response:
    """Post a key to the panel that is the client's base URL. The client keeps the session's cookie."""
    origin = f"{browser.base_url.scheme}://{_host(browser)}"
    answer = browser.post("/sign-in", data={"key": key}, headers={"origin": origin})
    assert answer.status_code == 303, answer.text
    return answer


def _host(browser: httpx.Client) -> str:
    """Return the host that the browser asks for, which a proxy may serve at another address."""
    return browser.headers.get("host", browser.base_url.netloc.decode())


def open_page(browser: httpx.Client) -> str:
    """Return the id of a new page."""
    found = re.search(r"'client_id': '([0-9a-f-]{36})'", browser.get("/").text)
    assert found is not None
    return found[1]


def socket_query(page_id: str, transport: str) -> str:
    """Return the path and the query of a page's handshake over this transport."""
    return f"{_HANDSHAKE}&transport={transport}&client_id={page_id}"


class PageSocket:
    """A page's WebSocket whose handshake is over."""

    def __init__(self, page_id: str, connection: ClientConnection) -> None:
        self._page_id = page_id
        self._connection = connection
        self._receive("0{")
        connection.send("40")
        self._receive("40{")

    def responds(self) -> bool:
        """Send an event of the page, and return whether the panel acknowledges it."""
        event = ["ack", {"client_id": self._page_id, "next_message_id": 0}]
        self._connection.send(f"420{json.dumps(event)}")
        return self._receive("430") == "430[]"

    def _receive(self, prefix: str) -> str:
        """Return the next message that begins with the prefix; the panel may send pings and updates before it."""
        while not (message := str(self._connection.recv(WAIT_SECONDS))).startswith(prefix):
            if message == "2":
                self._connection.send("3")
            else:
                assert message.startswith("42"), message
        return message


@contextmanager
def page_socket(browser: httpx.Client, page_id: str, verify: ssl.SSLContext) -> Iterator[PageSocket]:
    """Open the WebSocket of a page over TLS, with the browser's cookies."""
    host, address = _host(browser), (browser.base_url.host, browser.base_url.port)
    cookies = "; ".join(f"{name}={value}" for name, value in browser.cookies.items())
    with connect(
        f"wss://{host}{socket_query(page_id, 'websocket')}",
        sock=socket.create_connection(address, WAIT_SECONDS),
        ssl=verify,
        origin=f"https://{host}",
        additional_headers={"cookie": cookies},
        open_timeout=WAIT_SECONDS,
        close_timeout=WAIT_SECONDS,
    ) as connection:
        yield PageSocket(page_id, connection)
