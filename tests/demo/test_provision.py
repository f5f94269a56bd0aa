"""Provisioning: everything is created once, kept while it works, and repaired where it does not.

The gateway here is a fake with just enough of its HTTP API; the real one is provisioned in the end-to-end tests.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from email import message_from_bytes
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

import pytest

from loragate.demo import DemoAssets, DemoTenant, ProvisionError, provision

ADMIN_KEY = "an admin key of a good length"
PAGE = 2  # so that lists have pages


class FakeGateway:
    """`adapters` maps (tenant id, adapter's name) to the bytes of the uploaded tensors; `uploads` is their count."""

    def __init__(self) -> None:
        self.base_url = ""
        self.tenants: dict[str, str] = {}
        self.keys: dict[str, str] = {}
        self.adapters: dict[tuple[str, str], bytes] = {}
        self.uploads = 0
        self.made = 0
        self.broken = False

    def new(self, prefix: str) -> str:
        self.made += 1
        return f"{prefix}-{self.made}"


@contextmanager
def fake_gateway() -> Iterator[FakeGateway]:
    state = FakeGateway()
    handler = type("Handler", (_Handler,), {"state": state})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        state.base_url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield state
        finally:
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    state: ClassVar[FakeGateway]

    def do_GET(self) -> None:
        path, query = urlsplit(self.path).path, parse_qs(urlsplit(self.path).query)
        if path == "/admin/v1/tenants" and self._is_admin():
            self._list([{"id": id_, "name": name} for id_, name in self.state.tenants.items()], query)
        elif path == "/v1/adapters" and (tenant := self._tenant()):
            self._list([{"id": name, "name": name} for owner, name in self.state.adapters if owner == tenant], query)
        else:
            self._error(401, "This key is not known.")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        parts = urlsplit(self.path).path.strip("/").split("/")
        if self.state.broken:
            self._error(503, "The engine is not ready.")
        elif parts == ["admin", "v1", "tenants"] and self._is_admin():
            self._create_tenant(json.loads(body)["name"])
        elif parts[:3] == ["admin", "v1", "tenants"] and parts[4:] == ["keys"] and self._is_admin():
            key = self.state.new("lg")
            self.state.keys[key] = parts[3]
            self._answer(201, {"id": "k", "secret": key, "tenant_id": parts[3]})
        elif parts == ["v1", "adapters"] and (tenant := self._tenant()):
            self._upload(tenant, body)
        else:
            self._error(401, "This key is not known.")

    def _create_tenant(self, name: str) -> None:
        if name in self.state.tenants.values():
            return self._error(409, "There is a tenant of that name.")
        id_ = self.state.new("tn")
        self.state.tenants[id_] = name
        return self._answer(201, {"id": id_, "name": name})

    def _upload(self, tenant: str, body: bytes) -> None:
        form = message_from_bytes(f"content-type: {self.headers['content-type']}\r\n\r\n".encode() + body)
        fields: dict[str, bytes] = {}
        for part in form.get_payload():
            name = part.get_filename() or part.get_param("name", header="content-disposition")
            fields[name] = part.get_payload(decode=True)
        assert set(fields) == {"name", "adapter_config.json", "adapter_model.safetensors"}
        json.loads(fields["adapter_config.json"])
        self.state.uploads += 1
        self.state.adapters[tenant, fields["name"].decode()] = fields["adapter_model.safetensors"]
        self._answer(201, {"id": "ad", "name": fields["name"].decode(), "version": 1})

    def _bearer(self) -> str:
        return self.headers["authorization"].removeprefix("Bearer ")

    def _is_admin(self) -> bool:
        return self._bearer() == ADMIN_KEY

    def _tenant(self) -> str | None:
        return self.state.keys.get(self._bearer())

    def _list(self, items: list[dict[str, str]], query: dict[str, list[str]]) -> None:
        ids = [item["id"] for item in items]
        start = ids.index(query["after"][0]) + 1 if "after" in query else 0
        data = items[start : start + PAGE]
        last = data[-1]["id"] if data else None
        self._answer(200, {"data": data, "has_more": start + PAGE < len(items), "last_id": last})

    def _error(self, status: int, message: str) -> None:
        self._answer(status, {"error": {"message": message}})

    def _answer(self, status: int, content: dict[str, Any]) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Suppress the log."""


@pytest.fixture
def server() -> Iterator[FakeGateway]:
    with fake_gateway() as state:
        yield state


@pytest.fixture
def assets(tmp_path: Path) -> DemoAssets:
    tenants = []
    for tenant in ("acme", "globex", "initech"):
        folders = {name: tmp_path / "built" / tenant / name for name in ("one", "two", "three")}
        for folder in folders.values():
            folder.mkdir(parents=True)
            (folder / "adapter_config.json").write_text("{}")
            (folder / "adapter_model.safetensors").write_bytes(f"{folder.name} of {tenant}".encode())
        tenants.append(DemoTenant(tenant, folders))
    return DemoAssets("d1", tmp_path / "built", tmp_path / "built" / "model", tuple(tenants))


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return tmp_path / "data"


def written(data_dir: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((data_dir / "demo.json").read_text())
    return content


def test_a_fresh_server_gets_everything(server: FakeGateway, assets: DemoAssets, data_dir: Path) -> None:
    provision(assets, server.base_url, ADMIN_KEY, data_dir)
    assert list(server.tenants.values()) == ["acme", "globex", "initech"]
    by_name = {name: id_ for id_, name in server.tenants.items()}
    assert server.adapters[by_name["globex"], "two"] == b"two of globex"
    assert len(server.adapters) == 9
    demo = written(data_dir)
    assert demo["admin_key"] == ADMIN_KEY
    assert [tenant["name"] for tenant in demo["tenants"]] == ["acme", "globex", "initech"]
    for tenant in demo["tenants"]:
        assert server.keys[tenant["api_key"]] == tenant["id"] == by_name[tenant["name"]]
        assert tenant["adapters"] == ["one", "two", "three"]


def test_the_file_is_readable_by_its_owner_only(server: FakeGateway, assets: DemoAssets, data_dir: Path) -> None:
    provision(assets, server.base_url, ADMIN_KEY, data_dir)
    assert (data_dir / "demo.json").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in data_dir.iterdir()] == ["demo.json"]


def test_the_second_time_changes_nothing(server: FakeGateway, assets: DemoAssets, data_dir: Path) -> None:
    provision(assets, server.base_url, ADMIN_KEY, data_dir)
    before, inode = written(data_dir), (data_dir / "demo.json").stat().st_ino
    made, uploads = server.made, server.uploads
    provision(assets, server.base_url, ADMIN_KEY, data_dir)
    assert (server.made, server.uploads) == (made, uploads)
    assert written(data_dir) == before
    assert (data_dir / "demo.json").stat().st_ino == inode


def test_a_missing_adapter_is_added(server: FakeGateway, assets: DemoAssets, data_dir: Path) -> None:
    provision(assets, server.base_url, ADMIN_KEY, data_dir)
    uploads, removed = server.uploads, next(iter(server.adapters))
    del server.adapters[removed]
    provision(assets, server.base_url, ADMIN_KEY, data_dir)
    assert server.uploads == uploads + 1
    assert removed in server.adapters


def test_a_revoked_key_is_replaced_for_the_same_tenant(server: FakeGateway, assets: DemoAssets, data_dir: Path) -> None:
    provision(assets, server.base_url, ADMIN_KEY, data_dir)
    before, uploads = written(data_dir)["tenants"], server.uploads
    del server.keys[before[2]["api_key"]]
    provision(assets, server.base_url, ADMIN_KEY, data_dir)
    after = written(data_dir)["tenants"]
    assert after[:2] == before[:2]
    assert after[2]["id"] == before[2]["id"]
    assert server.keys[after[2]["api_key"]] == after[2]["id"]
    assert server.uploads == uploads


@pytest.mark.parametrize("content", [None, "", "[]", '{"admin_key": 1}', '{"admin_key": "x", "tenants": [3]}', "\xff"])
def test_a_missing_or_broken_file_is_rewritten(
    server: FakeGateway, assets: DemoAssets, data_dir: Path, content: str | None
) -> None:
    provision(assets, server.base_url, ADMIN_KEY, data_dir)
    file = data_dir / "demo.json"
    file.unlink()
    if content is not None:
        file.write_text(content, encoding="latin-1")
    provision(assets, server.base_url, ADMIN_KEY, data_dir)
    assert len(server.tenants) == 3, "found by name, beyond the first page"
    assert all(tenant["api_key"] in server.keys for tenant in written(data_dir)["tenants"])


def test_another_build_is_uploaded_again(server: FakeGateway, assets: DemoAssets, data_dir: Path) -> None:
    provision(assets, server.base_url, ADMIN_KEY, data_dir)
    keys, uploads = dict(server.keys), server.uploads
    provision(replace(assets, digest="d2"), server.base_url, ADMIN_KEY, data_dir)
    assert server.uploads == uploads + 9
    assert server.keys == keys


def test_another_admin_key_is_saved(server: FakeGateway, assets: DemoAssets, data_dir: Path) -> None:
    provision(assets, server.base_url, ADMIN_KEY, data_dir)
    provision(assets, server.base_url, "another key of a good length", data_dir)
    assert written(data_dir)["admin_key"] == "another key of a good length"


def test_a_rejection_names_the_request_and_no_key(server: FakeGateway, assets: DemoAssets, data_dir: Path) -> None:
    server.broken = True
    with pytest.raises(
        ProvisionError, match=r"POST /admin/v1/tenants returned 503: The engine is not ready\."
    ) as caught:
        provision(assets, server.base_url, ADMIN_KEY, data_dir)
    assert ADMIN_KEY not in str(caught.value)
    assert not (data_dir / "demo.json").exists()
