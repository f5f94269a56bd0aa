#!/usr/bin/python3 -IS
"""Exit with 0 if this container's server is ready, else with 1.

With `--engine`: if its engine answers calls; with `--worker`: if its fine-tune worker runs; with `--trainer`: if its
trainer does.
"""

import os
import socket
import ssl
import sys
import urllib.error
import urllib.request
from pathlib import Path

SECONDS = 4.0
FRAME_HEADER = 9  # bytes: 3 of length, type, flags, 4 of the stream
SETTINGS, HEADERS, END_HEADERS = 4, 1, 4


def unverified_tls() -> ssl.SSLContext:
    """Return a context for any certificate: it names the address that clients use, which this is not. Nothing secret is
    sent."""
    return ssl._create_unverified_context()  # noqa: S323


def is_server_ready() -> bool:
    """Return whether `/readyz` answers 200."""
    scheme = "https" if os.environ.get("LORAGATE_TLS_CERT") else "http"
    url = f"{scheme}://127.0.0.1:{os.environ.get('LORAGATE_PORT') or 8000}/readyz"
    context = unverified_tls()
    own = Path(os.environ.get("LORAGATE_DATA_DIR", "/data")) / "client.pem"  # of the server, for its own clients
    if own.exists():
        context.load_cert_chain(own)
    try:
        with urllib.request.urlopen(url, timeout=SECONDS, context=context) as answer:  # noqa: S310
            return answer.status == 200
    except (OSError, urllib.error.URLError):
        return False


def is_worker_running() -> bool:
    """Return whether the fine-tune worker runs."""
    workspace = os.environ.get("LORAGATE_FINETUNE__WORKSPACE")
    folder = Path(workspace) if workspace else Path(os.environ["LORAGATE_DATA_DIR"]) / "finetune"
    return is_running(folder, b"finetune-worker")


def is_trainer_running() -> bool:
    """Return whether the trainer runs."""
    return is_running(Path(os.environ["LORAGATE_DATA_DIR"]) / "trainer", b"trainer")


def is_running(folder: Path, command: bytes) -> bool:
    """Return whether the process that wrote the folder's pidfile runs this command."""
    try:
        arguments = Path(f"/proc/{(folder / 'pid').read_text()}/cmdline").read_bytes()
    except OSError:
        return False
    return command in arguments.split(b"\0")


def does_engine_answer() -> bool:
    """Return whether the engine answers a call, which it rejects because it brings no secret.

    Its event loop decides that, so an engine that hangs does not answer, although its port is open.
    """
    port = int((os.environ.get("LORAGATE_ENGINE__LISTEN") or "127.0.0.1:50100").rpartition(":")[2])
    try:
        with socket.create_connection(("127.0.0.1", port), SECONDS) as plain:
            if not os.environ.get("LORAGATE_TLS_CERT"):
                return is_answered(plain, b"\x86")
            context = unverified_tls()
            context.set_alpn_protocols(["h2"])
            own = os.environ.get("LORAGATE_ENGINE_CLIENT_CERT")
            if own:
                context.load_cert_chain(own, os.environ.get("LORAGATE_ENGINE_CLIENT_KEY"))
            with context.wrap_socket(plain) as encrypted:
                return is_answered(encrypted, b"\x87")
    except OSError:
        return False


def is_answered(connection: socket.socket, scheme: bytes) -> bool:
    """Call a method of gRPC over HTTP/2 (RFC 9113); return whether a response begins. `scheme` is its code in HPACK
    (RFC 7541)."""
    headers = b"\x83" + scheme  # POST
    for code, value in ((b"\x01", b"localhost"), (b"\x04", b"/loragate.v1.EngineService/Describe")):
        headers += code + bytes([len(value)]) + value  # the authority and the path
    headers += b"\x0f\x10\x10application/grpc\x00\x02te\x08trailers"  # the content's type first
    connection.sendall(
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0) + frame(HEADERS, END_HEADERS, 1, headers)
    )
    with connection.makefile("rb") as received:
        while len(header := received.read(FRAME_HEADER)) == FRAME_HEADER:
            if header[3] == HEADERS:
                return True
            received.read(int.from_bytes(header[:3], "big"))
    return False


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """Return a frame of HTTP/2."""
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


CHECKS = {"--engine": does_engine_answer, "--worker": is_worker_running, "--trainer": is_trainer_running}

if __name__ == "__main__":
    check = next((CHECKS[option] for option in sys.argv if option in CHECKS), is_server_ready)
    sys.exit(not check())
