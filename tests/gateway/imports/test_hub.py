"""/v1/imports: adapters that the server fetches from a hub and publishes like uploads."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from signed_adapters import new_key, signature_of, write_public_key

from loragate.adapter_store.signatures.bundle import MAX_SIGNATURE_BYTES
from loragate.adapter_store.signatures.config import Require, SignatureConfig, SignerConfig
from loragate.adapter_store.signatures.policy import load_policy
from loragate.gateway.config.gateway import GatewayConfig
from loragate.gateway.config.imports import ImportConfig
from loragate.v1 import adapters_pb2
from tests.gateway import tiny_model
from tests.gateway.fake_hub import COMMIT, FakeHub, Reply, fake_hub
from tests.gateway.grpc_client import connected, rejection
from tests.gateway.running_gateway import Gateway, serving
from tests.gateway.stub_engine import StubEngine

SOURCE = f"hf://acme/poet@{COMMIT}"
BASE = f"/acme/poet/resolve/{COMMIT}"
CONFIG, TENSORS = f"{BASE}/adapter_config.json", f"{BASE}/adapter_model.safetensors"


@pytest.fixture
async def hub() -> AsyncIterator[FakeHub]:
    async with fake_hub() as running:
        yield running


def importing(config: GatewayConfig, hub: FakeHub, stall_seconds: float) -> GatewayConfig:
    """A configuration that allows only this hub, and one import at a time."""
    return replace(config, stall_seconds=stall_seconds, imports=ImportConfig(hub=hub.url, hosts=(), max_concurrent=1))


@pytest.fixture
async def gateway(
    config: GatewayConfig, engine: StubEngine, hub: FakeHub, tenants: tuple[str, str, str]
) -> AsyncIterator[Gateway]:
    async with serving(importing(config, hub, 2.0), engine, tenants) as running:
        await running.until_ready()
        yield running


@pytest.fixture
async def waiting_gateway(
    config: GatewayConfig, engine: StubEngine, hub: FakeHub, tenants: tuple[str, str, str]
) -> AsyncIterator[Gateway]:
    """A gateway that waits for a hub that does not respond."""
    async with serving(importing(config, hub, 60.0), engine, tenants) as running:
        await running.until_ready()
        yield running


@pytest.fixture
def poet(hub: FakeHub, tmp_path: Path) -> Path:
    """An adapter on the hub."""
    folder = tiny_model.write_adapter(tmp_path / "poet")
    hub.offer("acme/poet", folder)
    return folder


async def begin(http: httpx.AsyncClient, source: str = SOURCE, **more: str) -> dict[str, Any]:
    answer = await http.post("/v1/imports", json={"source": source, "name": "poet", **more})
    assert answer.status_code == 201, answer.text
    begun: dict[str, Any] = answer.json()
    return begun


async def ended(http: httpx.AsyncClient, import_id: str) -> dict[str, Any]:
    """Return the import once it is no longer in progress."""
    async with asyncio.timeout(120):
        while True:
            found: dict[str, Any] = (await http.get(f"/v1/imports/{import_id}")).json()
            if found["status"] in ("ready", "failed", "cancelled"):
                return found
            await asyncio.sleep(0.02)


async def test_an_import_is_a_version_like_any_other(gateway: Gateway, hub: FakeHub, poet: Path) -> None:
    async with gateway.http() as http:
        begun = await begin(http, alias="canary")
        assert (begun["status"], begun["version"], begun["bytes_done"]) == ("queued", None, 0)
        done = await ended(http, begun["id"])
        assert (done["status"], done["version"], done["error"]) == ("ready", 1, None)
        size = (poet / "adapter_model.safetensors").stat().st_size
        assert done["bytes_done"] == size + (poet / "adapter_config.json").stat().st_size
        assert done["bytes_total"] == size
        adapter = (await http.get("/v1/adapters/poet")).json()
        assert adapter["aliases"] == {"canary": [{"version": 1, "weight": 1}]}
        stored = await http.get("/v1/adapters/poet/versions/1/files/adapter_model.safetensors")
        assert stored.content == (poet / "adapter_model.safetensors").read_bytes()
        assert [each["id"] for each in (await http.get("/v1/imports")).json()["data"]] == [begun["id"]]
    assert [asked.target for asked in hub.asked] == [CONFIG, TENSORS]
    assert all("authorization" not in asked.headers for asked in hub.asked)
    await gateway.until_nothing_is_spooled()


async def test_the_operator_sees_the_outcomes(gateway: Gateway, poet: Path) -> None:
    async with gateway.http() as http, gateway.admin() as operator:
        done = await ended(http, (await begin(http))["id"])
        await ended(http, (await begin(http, f"hf://acme/none@{COMMIT}"))["id"])
        async with asyncio.timeout(30):  # a failure is recorded after it was counted, a success before
            while "loragate_gateway_imports_running 0.0" not in (page := (await operator.get("/metrics")).text):
                await asyncio.sleep(0.02)
    assert 'loragate_gateway_imports_total{outcome="ready"} 1.0' in page
    assert 'loragate_gateway_imports_total{outcome="failed"} 1.0' in page
    assert f"loragate_gateway_imported_bytes_total {float(done['bytes_done'])}" in page


async def test_imports_over_grpc_are_the_same(gateway: Gateway, hub: FakeHub, poet: Path) -> None:
    async with connected(gateway.grpc_target, gateway.key) as client, gateway.http() as http:
        adapters, keyed = client.adapters, (*client.metadata, ("idempotency-key", "once"))
        request = adapters_pb2.ImportRequest(source=SOURCE, name="poet", alias="canary", token="secret")
        begun = await adapters.Import(request, metadata=keyed)
        assert (begun.status, begun.HasField("version"), begun.object) == ("queued", False, "adapter.import")
        assert (await adapters.Import(request, metadata=keyed)).id == begun.id
        done = await ended(http, begun.id)
        reported = await adapters.GetImport(adapters_pb2.GetImportRequest(id=begun.id), metadata=client.metadata)
        assert (reported.status, reported.version, reported.bytes_done, reported.updated_at) == (
            "ready",
            1,
            done["bytes_done"],
            done["updated_at"],
        )
        listed = await adapters.ListImports(adapters_pb2.ListImportsRequest(), metadata=client.metadata)
        assert (list(listed.data), listed.has_more, listed.last_id) == ([reported], False, reported.id)
        wrong = adapters_pb2.ImportRequest(source=f"hf://acme/none@{COMMIT}", name="poet")
        failed = await ended(http, (await adapters.Import(wrong, metadata=client.metadata)).id)
        request = adapters_pb2.GetImportRequest(id=failed["id"])
        error = (await adapters.GetImport(request, metadata=client.metadata)).error
        assert (error.code, error.param) == (failed["error"]["code"], "source")
        late = adapters_pb2.CancelImportRequest(id=begun.id)
        rejected = await rejection(adapters.CancelImport(late, metadata=client.metadata))
        assert (rejected.status, rejected.code) == (grpc.StatusCode.ABORTED, "import_ended")
        bad = await rejection(adapters.Import(adapters_pb2.ImportRequest(name="x"), metadata=client.metadata))
        assert (bad.status, bad.param) == (grpc.StatusCode.INVALID_ARGUMENT, "source")


async def test_an_import_equals_an_upload(gateway: Gateway, poet: Path) -> None:
    """One digest means one check for both."""
    async with gateway.http() as http:
        files = {file.name: (file.name, file.read_bytes()) for file in poet.iterdir()}
        uploaded = (await http.post("/v1/adapters", data={"name": "poet"}, files=files)).json()
        done = await ended(http, (await begin(http))["id"])
        imported = (await http.get("/v1/adapters/poet/versions/2")).json()
    assert done["version"] == 2
    assert imported["digest"] == uploaded["digest"]


async def test_a_token_is_sent_to_the_hub_only(
    gateway: Gateway, hub: FakeHub, poet: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    async with gateway.http() as http:
        begun = await begin(http, token="hf_secret")
        assert (await ended(http, begun["id"]))["status"] == "ready"
    assert {asked.headers["authorization"] for asked in hub.asked} == {"Bearer hf_secret"}
    assert all(gateway.key not in str(asked.headers) for asked in hub.asked)
    assert "hf_secret" not in caplog.text
    assert "hf_secret" not in str(begun)
    database = (gateway.config.data_dir / "loragate.db").read_bytes()
    assert b"hf_secret" not in database


@pytest.mark.parametrize(
    ("path", "reply", "code"),
    [
        (CONFIG, Reply(status=404), "source_not_found"),
        (TENSORS, Reply(status=404), "source_not_found"),
        (CONFIG, Reply(status=401), "source_denied"),
        (CONFIG, Reply(status=403), "source_denied"),
        (CONFIG, Reply(status=500), "source_unavailable"),
        (CONFIG, Reply(status=206, body=b"{}"), "source_unavailable"),
        (CONFIG, Reply(b"{}", headers={"content-encoding": "gzip"}), "source_unavailable"),
        (CONFIG, Reply(b"{}", headers={"x-repo-commit": "f" * 40}), "source_changed"),
        (TENSORS, Reply(b"x" * 10, headers={"x-linked-etag": f'"{"0" * 64}"'}), "source_changed"),
        (CONFIG, Reply(b" " * ((1 << 20) + 1)), "import_too_large"),
        (TENSORS, Reply(b"x", length=5 << 30), "import_too_large"),
        (TENSORS, Reply(b"x" * 1000, stalls_after=100), "import_stalled"),
        (CONFIG, Reply(b"", stalls_after=0, length=10), "import_stalled"),
        (TENSORS, Reply(b"x" * 10, length=20), "source_unavailable"),
        (TENSORS, Reply(b"x" * 10), "invalid_adapter"),
        (CONFIG, Reply(b"{}"), "invalid_adapter"),
    ],
)
async def test_failures_are_reported_and_nothing_is_stored(
    gateway: Gateway, hub: FakeHub, poet: Path, path: str, reply: Reply, code: str
) -> None:
    hub.replies[path] = reply
    async with gateway.http() as http:
        done = await ended(http, (await begin(http))["id"])
        assert done["status"] == "failed"
        assert (done["error"]["code"], done["version"]) == (code, None), done
        assert done["error"]["message"].endswith(".")
        assert (await http.get("/v1/adapters")).json()["data"] == []
    await gateway.until_nothing_is_spooled()


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("hf://acme/poet@main", "invalid_value"),
        ("hf://acme/poet", "invalid_value"),
        (f"hf://acme/poet@{COMMIT[:-1]}", "invalid_value"),
        (f"hf://acme/poet@{COMMIT.upper()}", "invalid_value"),
        (f"hf://acme@{COMMIT}", "invalid_value"),
        (f"hf://../poet@{COMMIT}", "invalid_value"),
        (f"hf://acme/poet/../../x@{COMMIT}", "invalid_value"),
        (f"hf://acme/poet?x=y@{COMMIT}", "invalid_value"),
        (f"hf://acme/po\\et@{COMMIT}", "invalid_value"),
        (f"hf://a:b@acme/poet@{COMMIT}", "invalid_value"),
        (f"hf://acme/poet%2f..@{COMMIT}", "invalid_value"),
        (f"hf://acme/poet@{COMMIT}\n", "invalid_value"),
        ("https://huggingface.co/acme/poet", "invalid_value"),
        ("file:///etc/passwd", "invalid_value"),
        ("s3://somebodys-bucket/poet", "source_not_allowed"),
        ("", "invalid_value"),
    ],
)
async def test_invalid_sources_are_rejected_at_once(gateway: Gateway, source: str, code: str) -> None:
    async with gateway.http() as http:
        answer = await http.post("/v1/imports", json={"source": source, "name": "poet"})
        assert answer.status_code == 400, answer.text
        assert (answer.json()["error"]["param"], answer.json()["error"]["code"]) == ("source", code)
        assert (await http.get("/v1/imports")).json()["data"] == []


async def test_names_are_checked_before_anything_is_fetched(gateway: Gateway, hub: FakeHub, poet: Path) -> None:
    async with gateway.http() as http:
        for field, value in (("name", "a b"), ("name", tiny_model.MODEL_ID), ("alias", "7")):
            answer = await http.post("/v1/imports", json={"source": SOURCE, "name": "poet", field: value})
            assert (answer.status_code, answer.json()["error"]["param"]) == (400, field)
    assert hub.asked == []


async def test_an_import_can_be_cancelled_while_it_fetches(waiting_gateway: Gateway, hub: FakeHub, poet: Path) -> None:
    hub.replies[CONFIG] = replace(hub.replies[CONFIG], stalls_after=10)
    assert waiting_gateway.services is not None
    async with waiting_gateway.http() as http:
        begun, waits = await begin(http), await begin(http)
        await hub.waiting.wait()
        assert (await http.get(f"/v1/imports/{waits['id']}")).json()["status"] == "queued"
        for each in (waits, begun):
            cancelled = (await http.delete(f"/v1/imports/{each['id']}")).json()
            assert cancelled["status"] == "cancelled"
            assert (await http.delete(f"/v1/imports/{each['id']}")).json() == cancelled
        while waiting_gateway.services.imports.running:
            await asyncio.sleep(0.02)
        assert (await http.get(f"/v1/imports/{begun['id']}")).json()["status"] == "cancelled"
        assert (await http.get("/v1/adapters")).json()["data"] == []
        hub.replies[CONFIG] = replace(hub.replies[CONFIG], stalls_after=None)
        done = await ended(http, (await begin(http))["id"])
        rejected = await http.delete(f"/v1/imports/{done['id']}")
        assert (rejected.status_code, rejected.json()["error"]["code"]) == (409, "import_ended")


async def test_an_idempotency_key_starts_one_import(gateway: Gateway, poet: Path) -> None:
    async with gateway.http() as http:
        http.headers["idempotency-key"] = "once"
        first, second = await begin(http), await begin(http, token="hf_other")
        assert first == second
        assert (await ended(http, first["id"]))["status"] == "ready"
        assert (await http.get("/v1/adapters/poet")).json()["latest_version"] == 1


async def test_another_tenants_import_is_not_found(waiting_gateway: Gateway, poet: Path) -> None:
    async with waiting_gateway.http() as http, waiting_gateway.http(waiting_gateway.other_key) as other:
        begun = await begin(http)
        for answer in (
            await other.get(f"/v1/imports/{begun['id']}"),
            await other.delete(f"/v1/imports/{begun['id']}"),
        ):
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, "import_not_found")
        assert (await other.get("/v1/imports")).json()["data"] == []
        await ended(http, begun["id"])


async def test_too_many_concurrent_imports_are_rejected(waiting_gateway: Gateway, hub: FakeHub, poet: Path) -> None:
    hub.replies[CONFIG] = replace(hub.replies[CONFIG], stalls_after=10)
    async with waiting_gateway.http() as http:
        for _ in range(8):
            await begin(http)
        answer = await http.post("/v1/imports", json={"source": SOURCE, "name": "poet"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "too_many_imports")


async def test_an_import_ends_with_its_key(waiting_gateway: Gateway, hub: FakeHub, poet: Path) -> None:
    """The hub is still sending when the key is revoked."""
    hub.replies[TENSORS] = replace(hub.replies[TENSORS], stalls_after=10)
    async with waiting_gateway.admin() as admin, waiting_gateway.http() as reader:
        keys = f"/admin/v1/tenants/{waiting_gateway.tenant_id}/keys"
        made = (await admin.post(keys, json={"name": "short", "scopes": ["adapters:write", "adapters:read"]})).json()
        async with waiting_gateway.http(made["secret"]) as http:
            begun = await begin(http)
        await hub.waiting.wait()
        assert (await admin.delete(f"/admin/v1/keys/{made['id']}")).status_code == 200
        done = await ended(reader, begun["id"])
    assert (done["status"], done["error"]["code"]) == ("failed", "key_revoked")


async def test_quotas_apply_to_imports(gateway: Gateway, poet: Path) -> None:
    async with gateway.admin() as admin, gateway.http() as http:
        limits = {"limits": {"max_storage_bytes": 100}}
        assert (await admin.patch(f"/admin/v1/tenants/{gateway.tenant_id}", json=limits)).status_code == 200
        done = await ended(http, (await begin(http))["id"])
    assert (done["status"], done["error"]["code"]) == ("failed", "quota_exceeded")


async def test_a_signature_is_fetched_and_verified(
    config: GatewayConfig, engine: StubEngine, hub: FakeHub, tenants: tuple[str, str, str], poet: Path
) -> None:
    key = new_key()
    signer = SignerConfig("acme", public_key=write_public_key(poet.parent / "key.pub", key))
    policy = load_policy(SignatureConfig(Require.ALWAYS, (signer,)))
    files = {file.name: file.read_bytes() for file in poet.iterdir()}
    async with serving(replace(importing(config, hub, 2.0), signatures=policy), engine, tenants) as gateway:
        await gateway.until_ready()
        async with gateway.http() as http:
            failed = await ended(http, (await begin(http))["id"])
            assert (failed["status"], failed["error"]["code"]) == ("failed", "signature_required")
            hub.replies[f"{BASE}/model.sig"] = Reply(signature_of(files | {CONFIG: b"{}"}, new_key()))
            failed = await ended(http, (await begin(http))["id"])
            assert (failed["status"], failed["error"]["code"]) == ("failed", "unknown_signer")
            hub.replies[f"{BASE}/model.sig"] = Reply(b" " * (MAX_SIGNATURE_BYTES + 1))
            failed = await ended(http, (await begin(http))["id"])
            assert (failed["status"], failed["error"]["code"]) == ("failed", "import_too_large")
            assert (await http.get("/v1/adapters")).json()["data"] == []
            hub.replies[f"{BASE}/model.sig"] = Reply(signature_of(files, key))
            assert (await ended(http, (await begin(http))["id"]))["status"] == "ready"
            version = (await http.get("/v1/adapters/poet/versions")).json()["data"][0]
    assert (version["signer"], version["lineage"]["source"]) == ("acme", "import")
