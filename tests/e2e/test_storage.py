"""A server on Postgres, Redis and S3, and one on its disk. A restart keeps tenants, keys and adapters; files come back
unchanged; damaged ones are not served.
"""

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from fsspec.core import url_to_fs
from private_postgres import private_postgres
from redis_server import RedisServer
from running_server import RunningServer, client, ok, upload
from s3_server import s3_server

from .conftest import Tiny
from .test_serving import complete, text_of

FILES = ("adapter_config.json", "adapter_model.safetensors")


@pytest.fixture(params=["disk", "s3"])
def environment(request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    """Settings of the server: all defaults, or nothing that is stored on its disk."""
    if request.param == "disk":
        yield {}
        return
    with ExitStack() as stack:
        postgres = stack.enter_context(private_postgres())
        redis = RedisServer()
        stack.callback(redis.close)
        s3 = stack.enter_context(s3_server())
        yield {
            "LORAGATE_DATABASE_URL": postgres.url("postgres"),
            "LORAGATE_REDIS_URL": redis.url,
            "LORAGATE_BLOB_URL": s3.new_url(),
        }


def _answer(tenant: httpx.Client, model: str) -> httpx.Response:
    return tenant.post("/v1/completions", json={"model": model, "prompt": "user", "max_tokens": 4, "temperature": 0})


def _damage(blob_url: str, tenant_id: str, digest: str) -> None:
    fs, root = url_to_fs(blob_url, use_listings_cache=False)
    name = f"{root}/{tenant_id}/{digest.removeprefix('sha256:')}/{FILES[1]}"
    content = fs.cat_file(name)
    fs.pipe_file(name, content[:-1] + bytes([content[-1] ^ 1]))


@pytest.mark.long
@pytest.mark.timeout(600)
def test_damaged_bytes_are_never_served(tiny: Tiny, tmp_path: Path, environment: dict[str, str]) -> None:
    data, options = tmp_path / "data", ("--model", str(tiny.base))
    server = RunningServer(data, *options, **environment)
    try:
        key, other = server.add_tenant("acme"), server.add_tenant("globex")
        with client(server.base_url, key) as acme, client(server.base_url, other) as globex:
            versions = [ok(upload(acme, "support", tiny.adapters[name])) for name in "ab"]
            ok(upload(globex, "support", tiny.adapters["b"]))
            for number, name in ((1, "a"), (2, "b")):
                for file in FILES:
                    exported = acme.get(f"/v1/adapters/support/versions/{number}/files/{file}")
                    assert exported.content == (tiny.adapters[name] / file).read_bytes()
            before = {model: ok(_answer(acme, model)) for model in ("support:1", "support:2")}
        with server.admin() as admin:
            tenants = ok(admin.get("/admin/v1/tenants"))["data"]
        (acme_id,) = [tenant["id"] for tenant in tenants if tenant["name"] == "acme"]
        assert server.stop() == 0
        assert not (data / "runtime.json").exists()
        blobs = environment.get("LORAGATE_BLOB_URL", str(data / "blobs"))
        _damage(blobs, acme_id, versions[1]["digest"])
        shutil.rmtree(data / "engine-cache")
        server = RunningServer(data, *options, **environment)
        with client(server.base_url, key) as acme, client(server.base_url, other) as globex:
            found = _answer(acme, "support:2")
            assert (found.status_code, _code(found)) == (503, "adapter_unavailable")
            again = _answer(acme, "support:2")
            assert (again.status_code, _code(again)) == (503, "adapter_quarantined")
            assert _text(ok(_answer(acme, "support:1"))) == _text(before["support:1"])
            assert complete(acme, "support:1") == text_of(tiny, "a")
            assert ok(_answer(globex, "support"))
            reported = ok(acme.get("/v1/adapters/support/versions/2"))
            assert (reported["status"], bool(reported["reason"])) == ("quarantined", True)
            assert acme.get(f"/v1/adapters/support/versions/2/files/{FILES[1]}").status_code == 503
            ok(upload(acme, "support", tiny.adapters["b"]))
            assert ok(acme.get("/v1/adapters/support/versions/2"))["status"] == "ready"
            assert _text(ok(_answer(acme, "support:2"))) == _text(before["support:2"])
        with server.admin() as admin:
            assert "loragate_gateway_quarantines_total 1.0" in admin.get("/metrics").text
        assert server.stop() == 0
        assert server.lines.count("loragate ready") == 1
    finally:
        server.stop()


def _code(response: httpx.Response) -> Any:
    return response.json()["error"]["code"]


def _text(answer: Any) -> Any:
    return answer["choices"][0]["text"]
