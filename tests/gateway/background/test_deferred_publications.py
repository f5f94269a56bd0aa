"""Uploads while the engine is unavailable: they are stored, shown as `verifying`, and finished once it is back."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import pytest

from loragate.gateway.background.deferred_publications import run_deferred_publication_loop
from loragate.gateway.engine import adapter_probe
from loragate.v1 import adapters_pb2, inference_pb2
from loragate.v1 import engine_pb2 as pb
from tests.gateway import tiny_model
from tests.gateway.grpc_client import Client
from tests.gateway.running_gateway import Gateway, serving


@pytest.fixture(autouse=True)
def _without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapter_probe, "_CONNECT_SECONDS", 0.2)


@asynccontextmanager
async def _finishing(gateway: Gateway) -> AsyncIterator[None]:
    """Run the gateway's periodic job at short intervals."""
    assert gateway.services is not None
    services = gateway.services
    task = asyncio.create_task(run_deferred_publication_loop(services.store, services.link, gateway.config, every=0.05))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _send(gateway: Gateway, folder: Path, *, seed: int = 0, headers: Any = None, **data: str) -> Any:
    files = {file.name: file.read_bytes() for file in tiny_model.write_adapter(folder, seed=seed).iterdir()}
    async with gateway.http() as http:
        return await http.post("/v1/adapters", data={"name": "poet", **data}, files=files, headers=headers)


async def _version_with(gateway: Gateway, version: int, status: str) -> dict[str, Any]:
    """Wait until the version has this status, and return it."""
    async with gateway.http() as http, asyncio.timeout(60):
        while True:
            found = await http.get(f"/v1/adapters/poet/versions/{version}")
            assert found.status_code == 200, found.text
            if found.json()["status"] == status:
                document: dict[str, Any] = found.json()
                return document
            await asyncio.sleep(0.02)


async def _use(gateway: Gateway, model: str) -> Any:
    async with gateway.http() as http:
        return await http.post("/v1/completions", json={"model": model, "prompt": "x", "max_tokens": 1})


async def test_an_upload_outlives_the_engines_absence(gateway: Gateway, client: Client, tmp_path: Path) -> None:
    await gateway.engine.kill()
    made = await _send(gateway, tmp_path / "a", tags="haiku")
    assert (made.status_code, made.json()["status"]) == (201, "verifying"), made.text
    assert (await _version_with(gateway, 1, "verifying"))["digest"] == made.json()["digest"]
    request = adapters_pb2.GetVersionRequest(name="poet", version=1)
    assert (await client.adapters.GetVersion(request, metadata=client.metadata)).status == "verifying"
    for model in ("poet", "poet:1"):
        caught = await _use(gateway, model)
        assert (caught.status_code, caught.json()["error"]["code"]) == (409, "adapter_verifying"), caught.text
    with pytest.raises(grpc.aio.AioRpcError) as aborted:
        await client.inference.Generate(
            inference_pb2.GenerateRequest(model="poet", prompt="x"), metadata=client.metadata
        )
    assert aborted.value.code() is grpc.StatusCode.ABORTED
    await gateway.engine.start()
    async with _finishing(gateway):
        await _version_with(gateway, 1, "ready")
    answered = await _use(gateway, "poet")
    assert answered.status_code == 200, answered.text
    async with gateway.http() as http:
        assert (await http.get("/v1/adapters/poet")).json()["tags"] == ["haiku"]


async def test_another_gateway_finishes_a_deferred_publication(gateway: Gateway, tmp_path: Path) -> None:
    await gateway.engine.kill()
    assert (await _send(gateway, tmp_path / "a")).json()["status"] == "verifying"
    await gateway.engine.start()
    tenants = gateway.tenant_id, gateway.key, gateway.other_key
    async with serving(gateway.config, gateway.engine, tenants) as other, _finishing(other), _finishing(gateway):
        await _version_with(gateway, 1, "ready")
    probes = [submit for submit in gateway.engine.submits if submit.HasField("adapter")]
    assert len(probes) == 1


async def test_a_later_rejection_has_its_reason(gateway: Gateway, tmp_path: Path) -> None:
    gateway.engine.fails = lambda submit: True
    gateway.engine.failure = pb.EngineError(code=pb.ERROR_CODE_OVERLOADED, message="too much waits")
    assert (await _send(gateway, tmp_path / "a")).json()["status"] == "verifying"
    gateway.engine.failure = pb.EngineError(code=pb.ERROR_CODE_NON_FINITE, message="NaN")
    async with _finishing(gateway):
        assert "NaN" in (await _version_with(gateway, 1, "rejected"))["reason"]
    assert (await _use(gateway, "poet")).status_code == 404
    gateway.engine.fails = lambda submit: False
    assert (await _send(gateway, tmp_path / "b")).json()["status"] == "ready"


async def test_an_engine_that_dies_meanwhile_counts_as_unavailable(gateway: Gateway, tmp_path: Path) -> None:
    gateway.engine.pause_after = 0
    sending = asyncio.create_task(_send(gateway, tmp_path / "a"))
    await gateway.engine.paused.wait()
    await gateway.engine.kill()
    made = await sending
    assert (made.status_code, made.json()["status"]) == (201, "verifying"), made.text
    async with gateway.http() as http:
        assert (await http.get("/v1/adapters")).json()["data"] == []


async def test_only_its_tenant_sees_and_deletes_a_waiting_version(gateway: Gateway, tmp_path: Path) -> None:
    await gateway.engine.kill()
    await _send(gateway, tmp_path / "a")
    path = "/v1/adapters/poet/versions/1"
    async with gateway.http(gateway.other_key) as http:
        assert [(await http.request(verb, path)).status_code for verb in ("GET", "DELETE")] == [404, 404]
    async with gateway.http() as http:
        assert (await http.delete(path)).json()["deleted"] is True
        found = (await http.get(path)).json()
        assert (found["status"], found["reason"]) == ("rejected", "its tenant deleted it")
        assert (await http.delete(path)).status_code == 404


async def test_the_same_idempotency_key_gets_the_same_version(gateway: Gateway, tmp_path: Path) -> None:
    await gateway.engine.kill()
    headers = {"idempotency-key": "once"}
    first = await _send(gateway, tmp_path / "a", headers=headers)
    second = await _send(gateway, tmp_path / "b", headers=headers)
    assert (first.status_code, second.status_code, first.content) == (201, 201, second.content)


async def test_a_cancelled_grpc_upload_leaves_nothing(gateway: Gateway, client: Client, tmp_path: Path) -> None:
    gateway.engine.pause_after = 0
    files = {file.name: file.read_bytes() for file in tiny_model.write_adapter(tmp_path / "a").iterdir()}
    request = adapters_pb2.UploadRequest(
        name="poet", adapter_config=files["adapter_config.json"], adapter_model=files["adapter_model.safetensors"]
    )
    call = client.adapters.Upload(iter([request]), metadata=client.metadata)
    await gateway.engine.paused.wait()
    call.cancel()
    assert (await _eventually(gateway))["reason"] == "its publication was interrupted"


async def _eventually(gateway: Gateway) -> dict[str, Any]:
    async with gateway.http() as http, asyncio.timeout(60):
        while (found := await http.get("/v1/adapters/poet/versions/1")).status_code == 404:
            await asyncio.sleep(0.02)
    document: dict[str, Any] = found.json()
    return document
