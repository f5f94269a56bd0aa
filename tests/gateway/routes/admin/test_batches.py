"""Batches of all tenants: what operators and tenants' administrators see and cancel, and that contents stay away."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from loragate.gateway.config.gateway import GatewayConfig
from tests.gateway.batches.batch_files import chat_line, create, ended
from tests.gateway.running_gateway import Gateway, serving
from tests.gateway.stub_engine import StubEngine

SECRET = "the treasure is under the oak"
LIST = "/admin/v1/batches"


@pytest.fixture
async def gateway(config: GatewayConfig, engine: StubEngine, tenants: tuple[str, str, str]) -> AsyncIterator[Gateway]:
    engine.pauses = lambda submit: submit.sampling.seed == 7
    engine.pause_after = 0
    async with serving(replace(config, max_batch_concurrency=4), engine, tenants) as running:
        await running.until_ready()
        yield running


async def test_operators_see_all_batches_and_administrators_their_own(gateway: Gateway) -> None:
    async with gateway.openai() as first, gateway.openai(gateway.other_key) as second:
        lines = [chat_line(SECRET, SECRET), chat_line("held", SECRET, seed=7)]
        one = await create(first, lines, metadata={"secret": SECRET})
        two = await ended(second, await create(second, [chat_line("one", SECRET)]))
        async with gateway.admin() as http:
            whole = (await http.get(LIST)).json()["data"]
            assert [each["id"] for each in whole] == [two.id, one.id]
            other_id = whole[0]["tenant_id"]
            assert (whole[1]["tenant_id"], other_id != gateway.tenant_id) == (gateway.tenant_id, True)
            page = (await http.get(f"{LIST}?limit=1")).json()
            assert (page["has_more"], page["last_id"]) == (True, two.id)
            rest = await http.get(f"{LIST}?limit=1&after={two.id}")
            assert [each["id"] for each in rest.json()["data"]] == [one.id]
            for query in (f"tenant={other_id}", "status=completed"):
                assert [each["id"] for each in (await http.get(f"{LIST}?{query}")).json()["data"]] == [two.id]
            found = await http.get(f"{LIST}/{one.id}")
            assert found.json()["held"], "a gateway runs its lines"
            assert found.json()["expires_at"] - found.json()["created_at"] == 86400
            for answer in (found, rest):
                assert "treasure" not in answer.text
                assert one.input_file_id not in answer.text
            own = {"scopes": ["admin"]}
            secret = (await http.post(f"/admin/v1/tenants/{other_id}/keys", json=own)).json()["secret"]
            async with gateway.http(secret) as administrator:
                assert [each["id"] for each in (await administrator.get(LIST)).json()["data"]] == [two.id]
                assert (await administrator.get(f"{LIST}?tenant={gateway.tenant_id}")).json()["data"] == []
                for method, place in (("GET", one.id), ("POST", f"{one.id}/cancel")):
                    refused = await administrator.request(method, f"{LIST}/{place}")
                    assert (refused.status_code, refused.json()["error"]["code"]) == (404, "batch_not_found")
            assert (await first.batches.retrieve(one.id)).status in ("validating", "in_progress")
            assert (await http.post(f"{LIST}/{two.id}/cancel")).status_code == 409
            assert (await http.post(f"{LIST}/{one.id}/cancel")).json()["status"] in ("cancelling", "cancelled")
        assert (await ended(first, one)).status == "cancelled"
