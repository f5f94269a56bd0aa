"""Work that the engine does for a client counts for its limits, whether the client receives any of it or not."""

import asyncio
from typing import Any

import pytest

from tests.attacks.rest import no_leases
from tests.gateway.running_gateway import Gateway
from tests.gateway.tiny_model import MODEL_ID
from tests.gateway.usage_records import ledger_rows

LONG = {"model": MODEL_ID, "prompt": [7] * 100, "max_tokens": 5}


async def limit(gateway: Gateway, **limits: int) -> None:
    async with gateway.admin() as admin:
        patched = await admin.patch(f"/admin/v1/tenants/{gateway.tenant_id}", json={"limits": limits})
    assert patched.status_code == 200, patched.text


async def used_today(gateway: Gateway) -> int:
    """What the limits' book says of the tenant."""
    assert gateway.services is not None
    await no_leases(gateway)
    observed = gateway.services.admission.limiter._pipelines[gateway.tenant_id].observed
    return observed.subjects["t"][1].day_tokens


async def leave_when_paused(gateway: Gateway, body: dict[str, Any]) -> bool:
    """Send a request, and leave when the engine pauses; return whether it was admitted."""
    engine = gateway.engine
    engine.paused.clear()
    async with gateway.http() as http:
        sent = asyncio.create_task(http.post("/v1/completions", json=body))
        paused = asyncio.create_task(engine.paused.wait())
        await asyncio.wait([sent, paused], return_when=asyncio.FIRST_COMPLETED)
        if not sent.done():
            sent.cancel()
            await asyncio.wait([sent])
            await engine.aborted.get()
        elif sent.result().status_code == 429:
            paused.cancel()
            return False
    await no_leases(gateway)
    return True


async def rows_of(gateway: Gateway, count: int) -> list[Any]:
    async with asyncio.timeout(30):
        while len(rows := await ledger_rows(gateway.config.database_url)) < count:
            await asyncio.sleep(0.02)
    return list(rows.values())


@pytest.mark.parametrize("stream", [True, False])
async def test_tokens_without_text_use_up_the_limit(gateway: Gateway, stream: bool) -> None:
    """With `logit_bias` on a special token every token is one without text; the client leaves before the end."""
    silent = gateway.engine.manifest.eos_token_ids[0]
    gateway.engine.script = lambda submit: [silent] * 300
    gateway.engine.pause_after = 190
    await limit(gateway, tokens_per_day=1000)
    body = {"model": MODEL_ID, "prompt": [7], "max_tokens": 191, "ignore_eos": True, "stream": stream}
    body["logit_bias"] = {str(silent): 100}
    admitted = [await leave_when_paused(gateway, body) for _ in range(10)]
    assert admitted == [True] * 5 + [False] * 5
    assert await used_today(gateway) == 5 * 191
    rows = await rows_of(gateway, 5)
    assert [(row.completion_tokens, row.generated_tokens) for row in rows] == [(0, 190)] * 5


async def test_leaving_during_the_prompt_is_not_free(gateway: Gateway) -> None:
    gateway.engine.read_tokens, gateway.engine.pause_after = 60, -1
    gateway.engine.cached_tokens = 16
    await limit(gateway, tokens_per_day=100_000)
    assert await leave_when_paused(gateway, LONG)
    assert await used_today(gateway) == 76
    (row,) = await rows_of(gateway, 1)
    assert (row.prompt_tokens, row.computed_prompt_tokens, row.generated_tokens) == (0, 60, 0)


async def test_leaving_the_queue_is_free(gateway: Gateway) -> None:
    """Nothing was computed for it."""
    gateway.engine.read_tokens, gateway.engine.pause_after = 0, -1
    await limit(gateway, tokens_per_day=100_000)
    assert await leave_when_paused(gateway, LONG)
    assert await used_today(gateway) == 0


async def test_an_error_at_the_end_gives_nothing_back(gateway: Gateway) -> None:
    """A response that is not streamed becomes an error after all its tokens but the last."""
    gateway.engine.fails, gateway.engine.fails_late = lambda submit: True, True
    gateway.engine.script = lambda submit: [7] * 50
    await limit(gateway, tokens_per_day=100_000)
    async with gateway.http() as http:
        assert (await http.post("/v1/completions", json=LONG | {"max_tokens": 40})).status_code == 500
    assert await used_today(gateway) == 139
    (row,) = await rows_of(gateway, 1)
    assert (row.prompt_tokens, row.completion_tokens, row.generated_tokens) == (0, 0, 39)


async def test_a_completion_that_found_its_stop_string_ends_in_the_engine(gateway: Gateway) -> None:
    """Others of the request go on; this one would otherwise be computed to `max_tokens`, unread."""
    engine = gateway.engine
    ended, ran_on = engine.tokenizer.encode("a STOP").ids, [7] * 300
    engine.script_of = lambda submit, index: ran_on if index == 2 else ended + ran_on
    engine.pause_after = 50  # until the gateway has read what came before
    await limit(gateway, tokens_per_day=100_000)
    body = {"model": MODEL_ID, "prompt": [7], "max_tokens": 200, "n": 3, "stop": ["STOP"]}
    async with gateway.http() as http, asyncio.timeout(30), asyncio.TaskGroup() as group:
        sent = group.create_task(http.post("/v1/completions", json=body))
        while len(engine.aborted_completions) < 2:
            await asyncio.sleep(0.01)
        engine.resume.set()
    assert [choice["finish_reason"] for choice in sent.result().json()["choices"]] == ["stop", "stop", "length"]
    request = engine.submits[-1].request_id
    assert sorted(engine.aborted_completions) == [(request, 0), (request, 1)]
    assert await used_today(gateway) <= 1 + 200 + 2 * 50
    (row,) = await rows_of(gateway, 1)
    assert row.completion_tokens <= row.generated_tokens <= 200 + 2 * 50


async def test_the_rest_of_a_failed_request_ends_in_the_engine(gateway: Gateway) -> None:
    """One of its completions failed, which ends the request for its client; the others would run on unread."""
    gateway.engine.fails_late, gateway.engine.fails = True, lambda submit: True
    gateway.engine.script_of = lambda submit, index: [7] * (5 if index == 0 else 300)
    gateway.engine.pause_after = 50
    body = {"model": MODEL_ID, "prompt": [7], "max_tokens": 200, "n": 2}
    async with gateway.http() as http:
        assert (await http.post("/v1/completions", json=body)).status_code == 500
    async with asyncio.timeout(10):
        assert await gateway.engine.aborted.get() == gateway.engine.submits[-1].request_id
