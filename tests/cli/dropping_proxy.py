"""A proxy to a server on which connections drop."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit


class DroppingProxy:
    """Ends each connection after this many bytes to the server, as often as `drops` says."""

    def __init__(self, upstream: str, after: int, drops: int) -> None:
        self._upstream = (str(urlsplit(upstream).hostname), int(urlsplit(upstream).port or 80))
        self._after = after
        self.drops = drops
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._upstream)
                threading.Thread(target=self._up, args=(client, server), daemon=True).start()
                threading.Thread(target=self._down, args=(server, client), daemon=True).start()

    def _up(self, client: socket.socket, server: socket.socket) -> None:
        sent = 0
        with suppress(OSError):
            while piece := client.recv(4096):
                server.sendall(piece)
                sent += len(piece)
                if sent > self._after and self.drops:
                    self.drops -= 1
                    break
        for each in (client, server):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _down(self, server: socket.socket, client: socket.socket) -> None:
        with suppress(OSError):
            while piece := server.recv(4096):
                client.sendall(piece)


@contextmanager
def dropping_proxy(upstream: str, after: int, drops: int) -> Iterator[DroppingProxy]:
    proxy = DroppingProxy(upstream, after, drops)
    try:
        yield proxy
    finally:
        proxy.close()
