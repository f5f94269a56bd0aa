"""A backup of a server under traffic, and its restoration into a new data directory."""

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from private_postgres import private_postgres
from running_server import RunningServer, clean_environment, client, ok, until, upload
from s3_server import s3_server

from .conftest import Tiny

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

FILES = ("adapter_config.json", "adapter_model.safetensors")
KEYS = 12


@dataclass(frozen=True)
class Stores:
    """Settings of the lost installation, and of the one that is restored."""

    lost: dict[str, str]
    restored: dict[str, str]


@pytest.fixture(params=["disk", "postgres and s3"])
def stores(request: pytest.FixtureRequest) -> Iterator[Stores]:
    if request.param == "disk":
        yield Stores({}, {})
        return
    with ExitStack() as stack:
        postgres = stack.enter_context(private_postgres())
        s3 = stack.enter_context(s3_server())
        asyncio.run(postgres.run("CREATE DATABASE restored"))
        yield Stores(*(_settings(postgres.url(name), s3.new_url()) for name in ("postgres", "restored")))


def _settings(database_url: str, blob_url: str) -> dict[str, str]:
    return {"LORAGATE_DATABASE_URL": database_url, "LORAGATE_BLOB_URL": blob_url}


@dataclass
class Traffic:
    """Clients that upload, revoke and chat until they are stopped. Each list is in the order of acknowledgements."""

    base_url: str
    keys: list[tuple[str, str]]  # id and text, to be revoked one after another
    versions: list[tuple[str, int, str]] = field(default_factory=list)  # name, number, adapter
    revoked: list[str] = field(default_factory=list)
    chats: int = 0
    stopped: threading.Event = field(default_factory=threading.Event)

    def upload(self, key: str, tiny: Tiny) -> None:
        with client(self.base_url, key) as tenant:
            for number in range(10_000):
                if self.stopped.is_set():
                    return
                name, adapter = f"name-{number % 3}", "abcd"[number % 4]
                made = ok(upload(tenant, name, tiny.adapters[adapter]))
                self.versions.append((name, made["version"], adapter))

    def revoke(self, admin_client: Callable[[], httpx.Client]) -> None:
        with admin_client() as admin:
            for key_id, _ in self.keys:
                if self.stopped.wait(0.2):
                    return
                ok(admin.delete(f"/admin/v1/keys/{key_id}"))
                self.revoked.append(key_id)

    def chat(self, key: str, model: str) -> None:
        with client(self.base_url, key) as tenant:
            while not self.stopped.is_set():
                ok(tenant.post("/v1/completions", json={"model": model, "prompt": "user", "max_tokens": 4}))
                self.chats += 1


def _command(environment: dict[str, str], *arguments: str) -> str:
    command = [sys.executable, "-m", "loragate.cli.main", *arguments]
    done = subprocess.run(
        command, env=clean_environment() | environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def _tenant_key(server: RunningServer, tenant_id: str) -> tuple[str, str]:
    with server.admin() as admin:
        key = ok(admin.post(f"/admin/v1/tenants/{tenant_id}/keys", json={"name": "test"}))
    return key["id"], key["secret"]


def test_a_restoration_loses_nothing_and_revives_nothing(tiny: Tiny, tmp_path: Path, stores: Stores) -> None:
    data, new, saved = tmp_path / "data", tmp_path / "new", tmp_path / "saved"
    options = ("--model", str(tiny.base))
    server = RunningServer(data, *options, **stores.lost)
    try:
        with server.admin() as admin:
            tenant_id = ok(admin.post("/admin/v1/tenants", json={"name": "acme"}))["id"]
        _, key = _tenant_key(server, tenant_id)
        traffic = Traffic(server.base_url, [_tenant_key(server, tenant_id) for _ in range(KEYS)])
        with client(server.base_url, key) as tenant:
            ok(upload(tenant, "first", tiny.adapters["a"]))
        with ThreadPoolExecutor(3) as pool:
            running = [
                pool.submit(traffic.upload, key, tiny),
                pool.submit(traffic.revoke, server.admin),
                pool.submit(traffic.chat, key, "first"),
            ]
            try:
                until(lambda: len(traffic.versions) >= 6 and len(traffic.revoked) >= 2 and traffic.chats >= 5)
                before = list(traffic.versions)
                _command(stores.lost, "backup", str(saved), "--data-dir", str(data))
                after_backup = len(traffic.versions)
                until(lambda: len(traffic.versions) >= after_backup + 4 and len(traffic.revoked) == KEYS)
            finally:
                traffic.stopped.set()
            for each in running:
                each.result()
        given = {(name, number) for name, number, _ in traffic.versions}
    finally:
        server.stop(signal.SIGKILL)
    old_blobs = stores.lost.get("LORAGATE_BLOB_URL", str(data / "blobs"))
    _command(stores.restored, "restore", str(saved), "--data-dir", str(new), "--journal", old_blobs)
    server = RunningServer(new, *options, **stores.restored)
    try:
        with client(server.base_url, key) as tenant:
            _check_bytes(tenant, tiny, before)
            ok(tenant.post("/v1/completions", json={"model": "first", "prompt": "user", "max_tokens": 4}))
            for name in ("name-0", "name-1", "name-2", "a-new-name"):
                number = ok(upload(tenant, name, tiny.adapters["a"]))["version"]
                assert (name, number) not in given
                assert number > 1000
        for _, revoked in traffic.keys:
            with closing(client(server.base_url, revoked)) as tenant:
                assert tenant.get("/v1/models").status_code == 401
    finally:
        assert server.stop() == 0
    assert "swept again" in _command(stores.restored, "restore", "--confirm", "--data-dir", str(new))


def _check_bytes(tenant: httpx.Client, tiny: Tiny, versions: list[tuple[str, int, str]]) -> None:
    """Every version that was acknowledged before the backup began is there, with equal bytes."""
    for name, number, adapter in versions:
        for file in FILES:
            found: Any = tenant.get(f"/v1/adapters/{name}/versions/{number}/files/{file}")
            assert found.status_code == 200, (name, number)
            assert found.content == (tiny.adapters[adapter] / file).read_bytes(), (name, number)
