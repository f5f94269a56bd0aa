"""The attacker: a process of low priority that runs one exploit between the lines `go` and the end of its stdin.

It sends prebuilt bytes over raw sockets, so that its own work takes little from the server's processors.
"""

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

BOUNDARY = b"benchmark"
_NICENESS = 15
_TIMEOUT_SECONDS = 60.0


@dataclass(frozen=True)
class Target:
    """What an exploit needs. `folder` has a valid adapter for the base model."""

    port: int
    panel_port: int | None
    key: str
    model: str
    folder: str


class Attack:
    """What an exploit does to a target, and the responses to it, by status."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.stopped = threading.Event()
        self.responses: Counter[str] = Counter()
        self.sent = 0
        self.facts: dict[str, Any] = {}
        self._threads: list[threading.Thread] = []

    def head(self, method: str, path: str, content_type: str = "application/json") -> bytes:
        """Return a request's head without the lines of its body's length."""
        return (
            f"{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {self.target.key}\r\n"
            f"content-type: {content_type}\r\nconnection: close\r\n"
        ).encode()

    def post(self, path: str, body: Mapping[str, Any]) -> bytes:
        """Return a whole request with a JSON body."""
        content = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
        return self.head("POST", path) + b"content-length: %d\r\n\r\n" % len(content) + content

    def form(self, path: str, fields: Mapping[str, bytes], files: Mapping[str, bytes]) -> bytes:
        """Return a whole request with a multipart form."""
        content = multipart(fields, files)
        return self.form_head(path) + b"content-length: %d\r\n\r\n" % len(content) + content

    def form_head(self, path: str) -> bytes:
        return self.head("POST", path, f"multipart/form-data; boundary={BOUNDARY.decode()}")

    def connect(self, port: int | None = None, *, receive_buffer: int | None = None) -> socket.socket:
        connection = socket.socket()
        if receive_buffer is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        connection.settimeout(_TIMEOUT_SECONDS)
        connection.connect(("127.0.0.1", port or self.target.port))
        return connection

    def exchange(self, request: bytes) -> bytes:
        """Send a request on a new connection; return its response. Count its status, or the kind of failure."""
        response = b""
        try:
            with self.connect() as connection:
                try:
                    connection.sendall(request)
                except OSError:
                    pass  # it may have been rejected before its end
                while part := connection.recv(1 << 16):
                    response += part
        except OSError as error:
            if not response:
                self.responses[type(error).__name__] += 1
        if response:
            self.responses[response[9:12].decode()] += 1
        self.sent += len(request)
        return response

    def ask(self, request: bytes) -> Any:
        """Send a request and return the JSON of its response, None for one without."""
        _, _, content = self.exchange(request).partition(b"\r\n\r\n")
        return json.loads(content) if content.startswith(b"{") else None

    def start(self, work: Callable[[], None]) -> None:
        """Run `work` in a thread after `go`."""
        self._threads.append(threading.Thread(target=work, daemon=True))

    def repeat(self, request: bytes, *, seconds: float, clients: int = 1) -> None:
        """Have each of the clients send the request, again after its response but at most once in so many seconds."""
        self.cycle(lambda: self.exchange(request), seconds=seconds, clients=clients)

    def cycle(self, work: Callable[[], object], *, seconds: float, clients: int = 1) -> None:
        """Have each of the clients call `work`, at most once in so many seconds."""

        def run() -> None:
            while not self.stopped.is_set():
                began = time.monotonic()
                work()
                self.stopped.wait(max(0.0, began + seconds - time.monotonic()))

        for _ in range(clients):
            self.start(run)

    def run(self) -> None:
        """Attack from the next line of stdin until its end, and write what came of it."""
        print("ready", flush=True)
        sys.stdin.readline()
        self.sent = 0
        self.responses.clear()
        for thread in self._threads:
            thread.start()
        sys.stdin.read()
        self.stopped.set()
        result = {"megabytes_sent": round(self.sent / 1e6, 1), "responses": dict(self.responses)} | self.facts
        print(json.dumps(result), flush=True)
        os._exit(0)  # threads may wait for responses


def multipart(fields: Mapping[str, bytes], files: Mapping[str, bytes]) -> bytes:
    parts = [part_head(name) + value + b"\r\n" for name, value in fields.items()]
    parts += [part_head(name, name) + content + b"\r\n" for name, content in files.items()]
    return b"".join(parts) + b"--" + BOUNDARY + b"--\r\n"


def part_head(name: str, filename: str | None = None) -> bytes:
    extra = "" if filename is None else f'; filename="{filename}"'
    return b"--" + BOUNDARY + f'\r\nContent-Disposition: form-data; name="{name}"{extra}\r\n\r\n'.encode()


class Attacker:
    """The attacker's process, prepared but not yet attacking. `stop` returns what came of it."""

    def __init__(self, exploit: str, target: Target) -> None:
        arguments = json.dumps({"exploit": exploit} | asdict(target))
        self._child = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.hostile.exploits", arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: os.nice(_NICENESS),
        )
        assert self._child.stdout is not None
        if self._child.stdout.readline() != "ready\n":
            raise SystemExit(f"the exploit {exploit!r} could not be prepared")

    def go(self) -> None:
        assert self._child.stdin is not None
        print("go", file=self._child.stdin, flush=True)

    def stop(self) -> dict[str, Any]:
        output, _ = self._child.communicate()
        result: dict[str, Any] = json.loads(output)
        return result

    def kill(self) -> None:
        self._child.kill()
        self._child.wait()
