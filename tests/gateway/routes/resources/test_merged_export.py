"""Merged exports over HTTP: who may have them, what they refuse, and how they end."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import grpc
import pytest

from loragate.gateway.config.gateway import GatewayConfig
from tests.gateway.running_gateway import Gateway, serving
from tests.gateway.stub_engine import StubEngine

URL = "/v1/adapters/poet/versions/1/merged"
PARTS = [b"the first part", b"x" * (1 << 20), b"the last"]

Upload = Callable[..., Awaitable[Any]]


@pytest.fixture
async def gateway(config: GatewayConfig, engine: StubEngine, tenants: tuple[str, str, str]) -> AsyncIterator[Gateway]:
    async with serving(replace(config, merged_exports=True), engine, tenants) as running:
        await running.until_ready()
        engine.export_parts = PARTS
        yield running


async def exporters_key(gateway: Gateway, tenant_id: str) -> str:
    async with gateway.admin() as http:
        made = await http.post(f"/admin/v1/tenants/{tenant_id}/keys", json={"scopes": ["export"]})
    secret: str = made.json()["secret"]
    return secret


async def test_an_export_is_streamed_audited_and_only_the_tenants_own(gateway: Gateway, upload: Upload) -> None:
    version = await upload("poet")
    key = await exporters_key(gateway, gateway.tenant_id)
    async with gateway.http(key) as http:
        assert (await http.get("/v1/whoami")).json()["merged_exports"] is True
        size = (await http.get(f"{URL}/size")).json()
        assert size == {"object": "adapter.version.merged", "size_bytes": len(b"".join(PARTS))}
        assert gateway.engine.exports.pop().size_only
        answer = await http.get(URL)
        assert (answer.status_code, answer.content) == (200, b"".join(PARTS))
        assert answer.headers["content-length"] == str(len(answer.content))
        (request,) = gateway.engine.exports
        assert (request.adapter.tenant_id, request.adapter.digest) == (gateway.tenant_id, version["digest"])
        assert request.base_digest == gateway.engine.manifest.base_digest
        assert (await http.get(URL.replace("/1/", "/2/"))).status_code == 404
    async with gateway.http() as http:  # `all` does not include the scope
        for url in (URL, f"{URL}/size"):
            assert (await http.get(url)).json()["error"]["code"] == "insufficient_scope"
        assert (await http.get("/v1/whoami")).json()["merged_exports"] is False
    async with gateway.admin() as http:
        tenants = (await http.get("/admin/v1/tenants")).json()["data"]
        (other,) = [tenant["id"] for tenant in tenants if tenant["id"] != gateway.tenant_id]
        events = (await http.get("/admin/v1/audit")).json()["data"]
    exports = [event for event in events if event["action"] == "adapter_version.export_merged"]
    assert [(event["target"], event["tenant_id"]) for event in exports] == [
        ("adapter_version:poet:1", gateway.tenant_id)
    ]
    async with gateway.http(await exporters_key(gateway, other)) as http:
        for url in (URL, f"{URL}/size"):
            assert (await http.get(url)).status_code == 404
    assert len(gateway.engine.exports) == 1


async def test_rejections_say_why(gateway: Gateway, upload: Upload) -> None:
    await upload("poet")
    async with gateway.http(await exporters_key(gateway, gateway.tenant_id)) as http:
        for code, words, expected in (
            (grpc.StatusCode.FAILED_PRECONDITION, "The adapter uses DoRA", (400, "cannot_merge")),
            (grpc.StatusCode.RESOURCE_EXHAUSTED, "another export is running", (503, "export_running")),
            (grpc.StatusCode.NOT_FOUND, "no client", (503, "adapter_unavailable")),
        ):
            gateway.engine.export_failure = (code, words)
            for url in (URL, f"{URL}/size"):
                answer = await http.get(url)
                assert (answer.status_code, answer.json()["error"]["code"]) == expected
                if answer.status_code == 400:
                    assert answer.json()["error"]["message"] == words


async def test_a_tenant_has_one_export_which_ends_with_its_client(gateway: Gateway, upload: Upload) -> None:
    await upload("poet")
    gateway.engine.export_allowed.clear()
    async with gateway.http(await exporters_key(gateway, gateway.tenant_id)) as http:
        async with http.stream("GET", URL) as first:
            assert first.status_code == 200
            for url in (URL, f"{URL}/size"):
                second = await http.get(url)
                assert (second.status_code, second.json()["error"]["code"]) == (429, "export_running")
        gateway.engine.export_allowed.set()
        async with asyncio.timeout(30):
            while (answer := await http.get(URL)).status_code == 429:
                await asyncio.sleep(0.02)
        assert answer.content == b"".join(PARTS)


async def test_exports_are_off_by_default(
    config: GatewayConfig, engine: StubEngine, tenants: tuple[str, str, str]
) -> None:
    async with serving(config, engine, tenants) as gateway:
        await gateway.until_ready()
        async with gateway.http(await exporters_key(gateway, gateway.tenant_id)) as http:
            for url in (URL, f"{URL}/size"):
                answer = await http.get(url)
                assert (answer.status_code, answer.json()["error"]["code"]) == (404, "exports_disabled")
            assert (await http.get("/v1/whoami")).json()["merged_exports"] is False
