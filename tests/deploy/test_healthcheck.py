"""The images' health check, run as Docker runs it."""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import grpc.aio
import pytest
from certificates import contexts, server_files

from loragate.engine.server.access import SecretRequired
from loragate.engine.server_tls import TlsFiles, grpc_credentials

SCRIPT = Path(__file__).parent.parent.parent / "deploy" / "docker" / "healthcheck.py"


def status_of(*options: str, **environment: str) -> int:
    command = [sys.executable, "-IS", str(SCRIPT), *options]
    return subprocess.run(command, env=environment, check=False).returncode


@contextmanager
def readyz(status: int, folder: Path | None = None) -> Iterator[str]:
    """Answer `/readyz` with a status, over TLS if there is a folder for a certificate. Yield the port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/readyz" else 404)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        if folder is not None:
            context, _ = contexts(folder, "gateway.example.org")
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield str(server.server_port)
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(("status", "expected"), [(200, 0), (503, 1)])
def test_a_server_is_healthy_once_it_is_ready(status: int, expected: int) -> None:
    with readyz(status) as port:
        assert status_of(LORAGATE_PORT=port) == expected


def test_a_server_with_a_certificate_for_another_name_is_healthy(tmp_path: Path) -> None:
    with readyz(200, tmp_path) as port:
        assert status_of(LORAGATE_PORT=port, LORAGATE_TLS_CERT="/tls/tls.pem") == 0


def test_no_server_is_unhealthy() -> None:
    with readyz(200) as port:
        pass
    assert status_of(LORAGATE_PORT=port) == 1


@pytest.mark.parametrize(
    ("option", "name", "folder"), [("--worker", "finetune-worker", "finetune"), ("--trainer", "trainer", "trainer")]
)
def test_a_part_is_healthy_while_it_runs(tmp_path: Path, option: str, name: str, folder: str) -> None:
    (tmp_path / folder).mkdir()
    pidfile = tmp_path / folder / "pid"
    data_dir = {"LORAGATE_DATA_DIR": str(tmp_path)}
    assert status_of(option, **data_dir) == 1
    pidfile.write_text(str(os.getpid()))  # of an earlier container: another process has the number now
    assert status_of(option, **data_dir) == 1
    with subprocess.Popen([sys.executable, "-c", "input()", name], stdin=subprocess.PIPE) as process:
        pidfile.write_text(str(process.pid))
        assert status_of(option, **data_dir) == 0
        process.communicate(b"\n")
    assert status_of(option, **data_dir) == 1


def test_a_worker_may_have_another_workspace(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()", "finetune-worker"], stdin=subprocess.PIPE) as worker:
        (tmp_path / "pid").write_text(str(worker.pid))
        assert status_of("--worker", LORAGATE_FINETUNE__WORKSPACE=str(tmp_path)) == 0
        worker.communicate(b"\n")


@asynccontextmanager
async def engine(folder: Path | None = None) -> AsyncIterator[str]:
    """Serve as an engine does, over TLS if there is a folder for a certificate. Yield its address."""
    server = grpc.aio.server(interceptors=[SecretRequired("the engine's secret")])
    if folder is None:
        port = server.add_insecure_port("127.0.0.1:0")
    else:
        cert, key, _ = server_files(folder, "loragate-engine")
        port = server.add_secure_port("127.0.0.1:0", grpc_credentials(TlsFiles(cert, key)))
    await server.start()
    yield f"0.0.0.0:{port}"
    await server.stop(grace=None)


@pytest.mark.parametrize("tls", [False, True])
async def test_an_engine_is_healthy_while_it_answers(tmp_path: Path, tls: bool) -> None:
    settings = {"LORAGATE_TLS_CERT": "/tls/tls.pem"} if tls else {}
    async with engine(tmp_path if tls else None) as address:
        settings["LORAGATE_ENGINE__LISTEN"] = address
        assert await asyncio.to_thread(status_of, "--engine", **settings) == 0
        if tls:  # This call blocks the event loop: the engine hangs, though its port is open.
            assert status_of("--engine", **settings) == 1
    assert await asyncio.to_thread(status_of, "--engine", **settings) == 1
