"""A whole server with a certificate: its parts, and commands beside it, find each other."""

import ssl
import subprocess
import sys
from pathlib import Path

import grpc
import httpx
import pytest
from certificates import server_files
from running_server import ADMIN_KEY, RunningServer, clean_environment

from loragate.gateway.connections.tls import ClientTls
from loragate.v1.adapters_pb2 import ListAdaptersRequest
from loragate.v1.adapters_pb2_grpc import AdapterServiceStub
from tests.e2e.conftest import Tiny

NAME = "loragate.example"

pytestmark = pytest.mark.long


def test_every_port_of_a_server_speaks_tls(tiny: Tiny, tmp_path: Path) -> None:
    cert, key, ca = server_files(tmp_path, NAME)
    files = {"LORAGATE_TLS_CERT": str(cert), "LORAGATE_TLS_KEY": str(key), "LORAGATE_PANEL__ENABLED": "true"}
    server = RunningServer(tmp_path / "data", "--model", str(tiny.base), **files)
    try:
        assert server.base_url.startswith("https://")
        assert "acme" in command(server, "tenants", "create", "acme").stdout
        tenant_key = command(server, "keys", "create", "acme").stdout.strip()
        signed_in_over(server, tenant_key, ClientTls(cert).context())
        adapters_over_grpc(server, tenant_key, ca)
    finally:
        assert server.stop() == 0


def command(server: RunningServer, *words: str) -> "subprocess.CompletedProcess[str]":
    """In the folder of the server's data directory, without options that name the server."""
    environment = clean_environment() | {"LORAGATE_ADMIN_KEY": ADMIN_KEY, "LORAGATE_DATA_DIR": str(server.data_dir)}
    arguments = [sys.executable, "-m", "loragate.cli.main", *words]
    done = subprocess.run(arguments, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done


def signed_in_over(server: RunningServer, key: str, verify: ssl.SSLContext) -> None:
    panel_url = server.runtime["panel_url"]
    with httpx.Client(base_url=panel_url, verify=verify, trust_env=False, timeout=60) as browser:
        answer = browser.post("/sign-in", data={"key": key}, headers={"origin": panel_url})
        assert answer.status_code == 303, answer.text
        assert answer.headers["set-cookie"].startswith("__Host-loragate-panel-")
        assert answer.headers["set-cookie"].endswith("; Secure")
        assert browser.get("/").status_code == 200


def adapters_over_grpc(server: RunningServer, key: str, ca: Path) -> None:
    credentials, named = grpc.ssl_channel_credentials(ca.read_bytes()), [("grpc.ssl_target_name_override", NAME)]
    with grpc.secure_channel(server.runtime["grpc_target"], credentials, options=named) as channel:
        metadata = [("authorization", f"Bearer {key}")]
        assert not AdapterServiceStub(channel).List(ListAdaptersRequest(), metadata=metadata, timeout=60).data
