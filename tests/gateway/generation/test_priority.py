"""The priority and deadline that the engine receives with a request."""

from dataclasses import replace
from typing import Any

import pytest

from tests.gateway.running_gateway import Gateway, serving
from tests.gateway.stub_engine import StubEngine
from tests.gateway.tiny_model import MODEL_ID

CHAT = {"model": MODEL_ID, "messages": [{"role": "user", "content": "hi"}]}


async def test_a_request_has_its_tenants_weight(gateway: Gateway, tenants: tuple[str, str, str]) -> None:
    tenant_id = tenants[0]
    async with gateway.admin() as admin:
        changed = await admin.patch(f"/admin/v1/tenants/{tenant_id}", json={"weight": 2.5})
        assert changed.status_code == 200, changed.text
    async with gateway.http() as http:
        for path, body in (
            ("/v1/chat/completions", CHAT | {"priority": -3}),
            ("/v1/completions", {"model": MODEL_ID, "prompt": "a", "priority": 7}),
            ("/v1/embeddings", {"model": MODEL_ID, "input": "a", "priority": 5}),
        ):
            assert (await http.post(path, json=body)).status_code == 200
    shares = [submit.share for submit in gateway.engine.submits]
    assert [(share.tenant_id, share.weight, share.priority, share.deadline_ms) for share in shares] == [
        (tenant_id, 2.5, -3, 0),
        (tenant_id, 2.5, 7, 0),
        (tenant_id, 2.5, 5, 0),
    ]


async def test_the_deadline_is_the_operators(config: Any, engine: StubEngine, tenants: tuple[str, str, str]) -> None:
    async with serving(replace(config, first_token_deadline_seconds=1.5), engine, tenants) as gateway:
        await gateway.until_ready()
        async with gateway.http() as http:
            assert (await http.post("/v1/chat/completions", json=CHAT)).status_code == 200
    assert engine.submits[0].share.deadline_ms == 1500


@pytest.mark.parametrize("priority", [101, -101, 1.5, "high"])
async def test_a_priority_out_of_range_is_named(gateway: Gateway, priority: object) -> None:
    async with gateway.http() as http:
        response = await http.post("/v1/chat/completions", json=CHAT | {"priority": priority})
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "priority"
