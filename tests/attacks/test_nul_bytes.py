"""NUL in strings, which Postgres rejects in statements and in rows, does not cause server errors."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any

import pytest
from private_postgres import private_postgres

from loragate.adapter_store.database.schema import upgrade
from loragate.gateway.config.gateway import GatewayConfig
from loragate.v1 import adapters_pb2, inference_pb2
from tests.gateway.gateway_setup import new_tenants
from tests.gateway.grpc_client import connected, rejection
from tests.gateway.running_gateway import Gateway, serving
from tests.gateway.stub_engine import StubEngine
from tests.gateway.tiny_model import MODEL_ID

NUL = "a\0b"


@pytest.fixture
async def gateway(config: GatewayConfig, engine: StubEngine) -> AsyncIterator[Gateway]:
    with private_postgres() as server:
        await server.run("CREATE DATABASE loragate")
        on_postgres = replace(config, database_url=server.url("loragate"))
        await upgrade(on_postgres.database_url)
        async with serving(on_postgres, engine, await new_tenants(on_postgres)) as running:
            await running.until_ready()
            yield running


def requests(tenant_id: str) -> list[tuple[str, str, dict[str, Any]]]:
    """Yield method, URL and body."""
    files = {name: (name, b"{}") for name in ("adapter_config.json", "adapter_model.safetensors")}
    return [
        *(("POST", "/v1/completions", {"json": {"model": model, "prompt": "x"}}) for model in (NUL, f"{NUL}:1")),
        ("POST", "/v1/completions", {"json": {"model": f"a@{NUL}", "prompt": "x"}}),
        ("POST", "/v1/embeddings", {"json": {"model": NUL, "input": "x"}}),
        ("GET", "/v1/models/a%00b", {}),
        ("GET", "/v1/adapters?after=a%00b", {}),
        ("GET", "/v1/adapters/a%00b", {}),
        ("DELETE", "/v1/adapters/a%00b", {}),
        ("GET", "/v1/adapters/a%00b/versions", {}),
        ("PATCH", "/v1/adapters/a%00b", {"json": {"limits": {"requests_per_minute": 1}}}),
        ("PUT", "/v1/adapters/a/aliases/a%00b", {"json": {"targets": [{"version": 1, "weight": 1}]}}),
        ("POST", "/v1/adapters", {"data": {"name": NUL}, "files": files}),
        ("POST", "/v1/adapters", {"data": {"name": "a", "alias": NUL}, "files": files}),
        ("POST", "/v1/adapters", {"json": {"name": "a", "adapter_config": NUL, "tensors_file_id": NUL}}),
        ("POST", "/v1/files", {"data": {"purpose": NUL}, "files": {"file": ("a", b"x")}}),
        ("GET", "/v1/files?after=a%00b&purpose=a%00b", {}),
        ("GET", "/v1/files/a%00b", {}),
        ("GET", "/v1/files/a%00b/content", {}),
        ("DELETE", "/v1/files/a%00b", {}),
        ("POST", "/v1/uploads", {"json": {"filename": NUL, "purpose": "adapter", "bytes": 1, "mime_type": "a"}}),
        ("POST", "/v1/uploads", {"json": {"filename": "a", "purpose": "adapter", "bytes": 1, "mime_type": NUL}}),
        ("GET", "/v1/uploads/a%00b", {}),
        ("POST", "/v1/uploads/a%00b/parts", {"files": {"data": ("a", b"x")}}),
        ("POST", "/v1/uploads/a%00b/complete", {"json": {"part_ids": [NUL]}}),
        *_jobs(),
        ("GET", "/v1/usage?adapter=a%00b", {}),
        ("GET", "/v1/usage?model=a%00b&key=a%00b&group_by=a%00b", {}),
        ("POST", "/admin/v1/tenants", {"json": {"name": NUL}}),
        ("PATCH", f"/admin/v1/tenants/{tenant_id}", {"json": {"name": NUL}}),
        ("GET", "/admin/v1/tenants/a%00b", {}),
        ("GET", "/admin/v1/tenants?after=a%00b", {}),
        ("POST", f"/admin/v1/tenants/{tenant_id}/keys", {"json": {"name": NUL}}),
        ("POST", "/admin/v1/tenants/a%00b/keys", {"json": {}}),
        ("DELETE", "/admin/v1/keys/a%00b", {}),
        ("POST", "/admin/v1/keys/a%00b/rotate", {"json": {"grace_seconds": 1}}),
        ("POST", "/admin/v1/admin-keys", {"json": {"name": NUL}}),
        ("GET", "/admin/v1/admin-keys?after=a%00b", {}),
        ("GET", "/admin/v1/admin-keys/a%00b", {}),
        ("DELETE", "/admin/v1/admin-keys/a%00b", {}),
        ("GET", "/admin/v1/audit?after=a%00b", {}),
        ("GET", "/admin/v1/audit?actor=a%00b&tenant_id=a%00b&action=a%00b", {}),
        ("GET", "/admin/v1/usage?tenant_id=a%00b", {}),
        ("GET", "/admin/v1/engines/a%00b", {}),
    ]


def _jobs() -> Iterator[tuple[str, str, dict[str, Any]]]:
    path, tuned = "/v1/fine_tuning/jobs", f"ft:{NUL}:first::12345678"
    yield "POST", "/v1/completions", {"json": {"model": tuned, "prompt": "x"}}
    for more in ({"model": NUL}, {"model": tuned}, {"training_file": NUL}, {"validation_file": NUL}, {"suffix": NUL}):
        yield "POST", path, {"json": {"model": MODEL_ID, "training_file": "file-x", **more}}
    for labels in ({NUL: "x"}, {"x": NUL}):
        yield "POST", path, {"json": {"model": MODEL_ID, "training_file": "file-x", "metadata": labels}}
    for query in ("after=a%00b", "metadata[k]=a%00b", "metadata[a%00b]=v"):
        yield "GET", f"{path}?{query}", {}
    for what in ("", "/events", "/checkpoints"):
        yield "GET", f"{path}/a%00b{what}", {}
        yield "GET", f"/admin/v1/jobs/a%00b{what}", {}
    for query in ("after=a%00b", "tenant=a%00b", "status=a%00b"):
        yield "GET", f"/admin/v1/jobs?{query}", {}
    for query in ("after=a%00b", "tenant=a%00b", "status=a%00b"):
        yield "GET", f"/admin/v1/batches?{query}", {}
    yield "GET", "/admin/v1/batches/a%00b", {}
    yield "POST", "/admin/v1/batches/a%00b/cancel", {}
    for order in ("cancel", "pause", "resume"):
        yield "POST", f"/admin/v1/jobs/a%00b/{order}", {}


async def test_over_rest(gateway: Gateway) -> None:
    failed = []
    async with gateway.http() as tenant, gateway.admin() as operator:
        for method, url, sent in requests(gateway.tenant_id):
            http = operator if url.startswith("/admin") else tenant
            answer = await http.request(method, url, **sent)
            if answer.status_code not in (400, 404, 422) and not (method == "GET" and answer.status_code == 200):
                failed.append((method, url, sent, answer.status_code, answer.text))
        assert not failed, "\n".join(str(each) for each in failed)
        assert (await tenant.post("/v1/completions", json={"model": MODEL_ID, "prompt": NUL})).status_code == 200
    async with connected(gateway.grpc_target, gateway.key) as client:
        calls = [
            client.inference.Generate(inference_pb2.GenerateRequest(model=NUL, prompt="x"), metadata=client.metadata),
            client.adapters.Get(adapters_pb2.GetAdapterRequest(name=NUL), metadata=client.metadata),
            client.adapters.List(adapters_pb2.ListAdaptersRequest(after=NUL), metadata=client.metadata),
            client.adapters.Delete(adapters_pb2.DeleteAdapterRequest(name=NUL), metadata=client.metadata),
        ]
        for call in calls:
            assert (await rejection(call)).code != "internal_error"
