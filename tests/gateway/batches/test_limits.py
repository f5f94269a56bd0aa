"""What bounds batches: their own limits, their keys, their windows, their tenants and what these may store."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import openai
import pytest
from openai.types import Batch
from sqlalchemy import update

from loragate.adapter_store.database.database import Database
from loragate.adapter_store.tables.batches import BatchRow
from loragate.adapter_store.timestamps import utc_now
from loragate.gateway.batches import held_batch, runner
from loragate.gateway.config.gateway import GatewayConfig
from loragate.gateway.config.prices import Price
from tests.gateway.batches.batch_files import chat_line, create, ended, jsonl, results
from tests.gateway.running_gateway import Gateway, serving
from tests.gateway.stub_engine import StubEngine
from tests.gateway.usage_records import ledger_rows


@pytest.fixture(autouse=True)
def brief_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_batch, "_RENEW_SECONDS", 0.05)
    monkeypatch.setattr(runner, "_NO_ROOM_SECONDS", 0.2)


async def limit(gateway: Gateway, **limits: int | None) -> None:
    async with gateway.admin() as http:
        answer = await http.patch(f"/admin/v1/tenants/{gateway.tenant_id}", json={"limits": limits})
        assert answer.status_code == 200, answer.text
    await asyncio.sleep(0)


async def change(config: GatewayConfig, **values: Any) -> None:
    """Change all batches behind the server's back."""
    database = Database(config.database_url)
    async with database.operator(write=True) as session:
        await session.execute(update(BatchRow).values(**values))
    await database.close()


async def until(client: openai.AsyncOpenAI, batch: Batch, completed: int) -> Batch:
    async with asyncio.timeout(20):
        while batch.request_counts is None or batch.request_counts.completed < completed:
            await asyncio.sleep(0.02)
            batch = await client.batches.retrieve(batch.id)
    return batch


async def test_limits_of_requests_do_not_apply(gateway: Gateway) -> None:
    await limit(gateway, requests_per_minute=3, tokens_per_minute=60, tokens_per_day=60, max_concurrency=1)
    gateway.engine.respond_with("Yes.")
    async with gateway.openai() as client:
        batch = await ended(client, await create(client, [chat_line(f"line-{n}") for n in range(20)]))
        assert batch.request_counts is not None
        assert batch.request_counts.completed == 20
        chat = chat_line("chat")["body"] | {"max_tokens": 1}
        await client.chat.completions.create(**chat)


async def test_the_tokens_of_a_day(gateway: Gateway) -> None:
    gateway.engine.respond_with("Yes.")
    lines = [chat_line(f"line-{n}") for n in range(200)]
    async with gateway.openai() as client:
        await limit(gateway, batch_tokens_per_day=100)
        batch = await create(client, lines)
        async with asyncio.timeout(20):
            while not (batch.model_extra or {}).get("waits_for"):
                await asyncio.sleep(0.02)
                batch = await client.batches.retrieve(batch.id)
        assert batch.status == "in_progress"
        assert batch.model_extra is not None
        assert "batch_tokens_per_day" in batch.model_extra["waits_for"]
        assert 0 < batch.model_extra["waits_until"] - utc_now().timestamp() <= 86400
        assert batch.request_counts is not None
        done = batch.request_counts.completed
        assert 0 < done < 200
        await limit(gateway, batch_tokens_per_day=None)
        await change(gateway.config, waits_until=utc_now())  # it is the next day
        batch = await ended(client, batch)
        assert len(await results(client, batch.output_file_id)) == 200


async def test_lines_bytes_and_batches(gateway: Gateway) -> None:
    await limit(gateway, max_batch_lines=2, max_batch_bytes=2000, max_unfinished_batches=1)
    gateway.engine.pause_after = 0
    async with gateway.openai() as client:
        many = await ended(client, await create(client, [chat_line(f"line-{n}") for n in range(3)]))
        assert many.errors is not None
        assert [each.code for each in many.errors.data or []] == ["too_many_lines"]
        with pytest.raises(openai.BadRequestError) as large:
            await create(client, [chat_line("one", "x" * 2000)])
        assert (large.value.param, large.value.code) == ("input_file_id", "file_too_large")
        await create(client, [chat_line("one")])
        with pytest.raises(openai.ConflictError) as busy:
            await create(client, [chat_line("one")])
        assert busy.value.code == "too_many_batches"


async def test_a_revoked_key_ends_its_batches(gateway: Gateway) -> None:
    gateway.engine.respond_with("Yes.")
    gateway.engine.pauses = lambda submit: submit.sampling.seed == 7
    gateway.engine.pause_after = 0
    async with gateway.admin() as admin:
        made = (await admin.post(f"/admin/v1/tenants/{gateway.tenant_id}/keys", json={"scopes": ["inference"]})).json()
        async with gateway.openai(made["secret"]) as client:
            batch = await until(client, await create(client, [chat_line("one"), chat_line("held", seed=7)]), 1)
        assert (await admin.delete(f"/admin/v1/keys/{made['id']}")).is_success
    async with gateway.openai() as client:
        batch = await ended(client, batch)
        assert batch.status == "failed"
        assert batch.errors is not None
        assert [each.code for each in batch.errors.data or []] == ["key_revoked"]
        assert (await results(client, batch.output_file_id)).keys() == {"one"}, "what was run was paid for"
    assert len(await settled(gateway)) == 1


async def test_a_rotated_key_hands_its_batches_to_the_new_one(gateway: Gateway) -> None:
    gateway.engine.respond_with("Yes.")
    gateway.engine.pauses = lambda submit: submit.sampling.seed == 7
    gateway.engine.pause_after = 0
    lines = [chat_line("one"), chat_line("held", seed=7)]
    async with gateway.admin() as admin, gateway.openai() as client:
        made = (await admin.post(f"/admin/v1/tenants/{gateway.tenant_id}/keys", json={"scopes": ["inference"]})).json()
        async with gateway.openai(made["secret"]) as of_key:
            first = await until(of_key, await create(of_key, lines), 1)
            second = await until(of_key, await create(of_key, lines), 1)
        for _ in range(2):
            made = (await admin.post(f"/admin/v1/keys/{made['id']}/rotate")).json()
        await asyncio.sleep(0.2)  # the lease is renewed, and the key is checked, four times
        gateway.engine.pauses = lambda submit: submit.sampling.seed == 8
        gateway.engine.resume.set()
        assert (await ended(client, first)).status == "completed"
        assert (await ended(client, second)).status == "completed"
        gateway.engine.resume.clear()
        async with gateway.openai(made["secret"]) as of_key:
            third = await until(of_key, await create(of_key, [chat_line("one"), chat_line("held", seed=8)]), 1)
        new = (await admin.post(f"/admin/v1/keys/{made['id']}/rotate")).json()
        assert (await admin.delete(f"/admin/v1/keys/{new['id']}")).is_success
        third = await ended(client, third)
        assert third.errors is not None
        assert (third.status, [each.code for each in third.errors.data or []]) == ("failed", ["key_revoked"])


async def settled(gateway: Gateway) -> dict[str, Any]:
    return dict(await ledger_rows(gateway.config.database_url))


async def test_an_expired_batch(gateway: Gateway) -> None:
    gateway.engine.respond_with("Yes.")
    gateway.engine.pauses = lambda submit: submit.sampling.seed == 7
    gateway.engine.pause_after = 0
    async with gateway.openai() as client:
        batch = await until(client, await create(client, [chat_line("one"), chat_line("held", seed=7)]), 1)
        await change(gateway.config, expires_at=utc_now() - timedelta(seconds=1))
        batch = await ended(client, batch)
        assert batch.status == "expired"
        assert batch.expired_at
        assert (await results(client, batch.output_file_id)).keys() == {"one"}
        (line,) = (await results(client, batch.error_file_id)).values()
    assert (line["custom_id"], line["response"], line["error"]["code"]) == ("held", None, "batch_expired")


async def test_the_file_is_deleted_before_it_is_read(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "MAX_HELD", 0)
    async with gateway.openai() as client:
        batch = await create(client, [chat_line("one")])
        await client.files.delete(batch.input_file_id)
        monkeypatch.setattr(runner, "MAX_HELD", 4)
        batch = await ended(client, batch)
    assert batch.errors is not None
    assert [(each.code, each.param) for each in batch.errors.data or []] == [("file_not_found", "input_file_id")]


async def test_results_wait_for_room(gateway: Gateway) -> None:
    gateway.engine.respond_with("Yes.")
    async with gateway.openai() as client:
        lines = [chat_line(f"line-{n}") for n in range(10)]
        await limit(gateway, max_storage_bytes=len(jsonl(lines)) + 100)
        batch = await create(client, lines)
        async with asyncio.timeout(20):
            while "max_storage_bytes" not in str((batch.model_extra or {}).get("waits_for")):
                await asyncio.sleep(0.02)
                batch = await client.batches.retrieve(batch.id)
        assert batch.status == "finalizing"
        await limit(gateway, max_storage_bytes=None)
        batch = await ended(client, batch)
        assert len(await results(client, batch.output_file_id)) == 10


async def test_the_price_factor(config: GatewayConfig, engine: StubEngine, tenants: tuple[str, str, str]) -> None:
    engine.respond_with("Yes.")
    price = Price(prompt=Decimal(2), completion=Decimal(4))
    config = replace(config, prices=(price,), batch_price_factor=Decimal("0.25"))
    async with serving(config, engine, tenants) as gateway, gateway.openai() as client:
        batch = await ended(client, await create(client, [chat_line("one")]))
        (row,) = (await settled(gateway)).values()
        assert row.amount == (row.prompt_tokens * 20_000 + row.completion_tokens * 40_000) // 4
        assert row.ttft_ms is None
        usage = batch.usage
        assert usage is not None
        assert (usage.input_tokens, usage.output_tokens) == (row.prompt_tokens, row.completion_tokens)
        async with gateway.http() as http:
            (used,) = (await http.get("/v1/usage?group_by=endpoint")).json()["data"]
            quality = (await http.get("/v1/usage/service")).json()
    assert (used["endpoint"], used["completion_tokens"]) == ("batch.chat", row.completion_tokens)
    assert quality["requests"] == 0, "no client waited for them"


async def test_tenants_see_their_own_batches_only(gateway: Gateway) -> None:
    async with gateway.openai() as client, gateway.openai(gateway.other_key) as other:
        batch = await ended(client, await create(client, [chat_line("one")]))
        for attempt in (
            other.batches.retrieve(batch.id),
            other.batches.cancel(batch.id),
            other.files.retrieve(batch.output_file_id or ""),
            other.files.content(batch.output_file_id or ""),
            other.batches.create(
                input_file_id=batch.input_file_id, endpoint="/v1/chat/completions", completion_window="24h"
            ),
        ):
            with pytest.raises(openai.NotFoundError):
                await attempt
        assert not (await other.batches.list()).data
        with pytest.raises(openai.BadRequestError) as caught:
            await other.batches.list(after=batch.id)
        assert caught.value.param == "after"


async def test_tenants_take_turns(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "MAX_HELD", 1)
    monkeypatch.setattr("loragate.gateway.batches.line_run._TURN_SECONDS", 0.2)
    monkeypatch.setattr("loragate.gateway.batches.line_run._CHECK_SECONDS", 0.05)
    monkeypatch.setattr("loragate.gateway.batches.line_run._WIND_UP_SECONDS", 0.1)
    gateway.engine.respond_with("Yes.")
    gateway.engine.pauses = lambda submit: submit.sampling.seed == 7
    gateway.engine.pause_after = 0
    async with gateway.openai() as client, gateway.openai(gateway.other_key) as other:
        long = await until(client, await create(client, [chat_line("one"), chat_line("held", seed=7)]), 1)
        short = await ended(other, await create(other, [chat_line("one")]))
        assert short.status == "completed"
        assert (await client.batches.retrieve(long.id)).status == "in_progress"
        gateway.engine.resume.set()
        assert len(await results(client, (await ended(client, long)).output_file_id)) == 2
