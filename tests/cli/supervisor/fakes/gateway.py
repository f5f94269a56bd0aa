"""A fake gateway on an inherited socket. Arguments: parent, descriptor, the engine's socket path.

It ends a moment after SIGTERM, or never while the file `stubborn` exists.
"""

import json
import signal
import socket
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

from loragate.cli.parent_death import exit_when_parent_dies

exit_when_parent_dies(int(sys.argv[1]))
ENGINE = Path(sys.argv[3])


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/metrics":
            self._send(200, b"loragate_gateway_ready_workers 2.0\n")
            return
        ready = ENGINE.exists()
        body = json.dumps({"parts": {"engine": "ok" if ready else "not connected"}}).encode()
        self._send(200 if ready else 503, body)

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def note(event: str) -> None:
    with Path("events").open("a") as events:
        events.write(event + "\n")


asked = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: asked.set())
server = HTTPServer(("127.0.0.1", 0), Handler, bind_and_activate=False)
server.socket.close()
server.socket = socket.socket(fileno=int(sys.argv[2]))
threading.Thread(target=server.serve_forever, daemon=True).start()
while not asked.wait(0.05):
    pass
note("gateway drains")
while Path("stubborn").exists():
    signal.pause()
threading.Event().wait(0.5)
note("gateway stops")
