"""Tenants are billed for the tokens delivered to their clients, however the requests end."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import httpx
import pytest
from openai import AsyncOpenAI
from redis_server import RedisServer
from thinned import thinned

from loragate.gateway.config.gateway import GatewayConfig
from loragate.v1 import inference_pb2 as pb
from tests.gateway.gateway_process import gateway_in_a_process
from tests.gateway.grpc_client import connected
from tests.gateway.running_gateway import Gateway, serving
from tests.gateway.stub_engine import StubEngine
from tests.gateway.tiny_model import MODEL_ID
from tests.gateway.usage_records import ledger_rows

TEXT = {"model": MODEL_ID, "prompt": "one two three", "max_tokens": 12}
CHAT = {"model": MODEL_ID, "messages": [{"role": "user", "content": "A question about stars"}]}
COUNTS = ("prompt_tokens", "completion_tokens")


async def billed(gateway: Gateway, requests: int) -> dict[str, int]:
    """Return the tenant's totals once this many requests are settled."""
    async with gateway.http() as http, asyncio.timeout(60):
        while True:
            totals: dict[str, int] = (await http.get("/v1/usage")).json()["totals"]
            if totals["requests"] >= requests:
                assert totals["requests"] == requests
                return totals
            await asyncio.sleep(0.05)


def reported(*usages: Any) -> dict[str, int]:
    """Return the sums of OpenAI's usage objects."""
    sums = {name: sum(getattr(usage, name, 0) for usage in usages) for name in COUNTS}
    details = [usage.prompt_tokens_details for usage in usages if getattr(usage, "prompt_tokens_details", None)]
    return sums | {"cached_tokens": sum(each.cached_tokens or 0 for each in details)}


def agrees(totals: dict[str, int], expected: dict[str, int]) -> bool:
    return {name: totals[name] for name in expected} == expected


async def _streamed(client: AsyncOpenAI, **body: Any) -> Any:
    stream = await client.completions.create(stream=True, stream_options={"include_usage": True}, **body)
    usage = None
    async for chunk in stream:
        usage = chunk.usage or usage
    return usage


async def test_sums_equal_the_usage_reported_to_clients(gateway: Gateway, upload: Callable[..., Any]) -> None:
    await upload("poet")
    gateway.engine.cached_tokens = 2
    client = gateway.openai()
    usages = [
        (await client.chat.completions.create(**CHAT)).usage,
        (await client.chat.completions.create(**CHAT | {"model": "poet"}, n=3)).usage,
        (await client.completions.create(**TEXT | {"prompt": ["one two", "three"], "n": 2})).usage,
        (await client.embeddings.create(model="poet:1", input=["one two", "three", "four"])).usage,
        await _streamed(client, **TEXT, n=2),
        await _streamed(client, **TEXT | {"model": "poet@default"}),
    ]
    totals = await billed(gateway, len(usages))
    assert agrees(totals, reported(*usages)), (totals, reported(*usages))
    async with gateway.admin() as http:
        seen = (await http.get("/admin/v1/usage", params={"group_by": "tenant,adapter,endpoint"})).json()
    assert seen["totals"] == totals
    assert sum(row["requests"] for row in seen["data"] if row["adapter"] == "poet") == 3
    assert {row["tenant_id"] for row in seen["data"]} == {gateway.tenant_id}


async def test_grpc_is_billed_as_rest_is(
    config: GatewayConfig, engine: StubEngine, tenants: tuple[str, str, str]
) -> None:
    async with serving(replace(config, grpc_listen="127.0.0.1:0"), engine, tenants) as gateway:
        await gateway.until_ready()
        async with connected(gateway.grpc_target, gateway.key) as client:
            asked = pb.GenerateRequest(model=MODEL_ID, prompt="one two three", max_tokens=12)
            whole = await client.inference.Generate(asked, metadata=client.metadata)
            asked.n = 2
            async for piece in client.inference.GenerateStream(asked, metadata=client.metadata):
                last = piece
        rest = (await gateway.openai().completions.create(**TEXT)).usage
        assert agrees(await billed(gateway, 3), reported(whole.usage, last.usage, rest))


async def test_text_after_a_stop_string_is_not_billed(gateway: Gateway) -> None:
    gateway.engine.respond_with("The quick brown fox STOP here jumps over the lazy dog and more and more")
    client = gateway.openai()
    whole = (await client.completions.create(**TEXT | {"max_tokens": 60})).usage
    cut = await client.completions.create(**TEXT | {"max_tokens": 60}, stop=["STOP"])
    streamed = await _streamed(client, **TEXT | {"max_tokens": 60}, stop=["STOP"])
    assert cut.choices[0].text == "The quick brown fox "
    assert cut.usage is not None
    assert whole is not None
    assert cut.usage.completion_tokens == streamed.completion_tokens < whole.completion_tokens
    assert agrees(await billed(gateway, 3), reported(whole, cut.usage, streamed))


@pytest.mark.parametrize("n", [1, 3])
async def test_a_client_that_leaves_pays_for_delivered_tokens(gateway: Gateway, n: int) -> None:
    gateway.engine.pause_after = 4
    async with gateway.http() as http:
        async with http.stream("POST", "/v1/completions", json=TEXT | {"stream": True, "n": n}) as response:
            events = 0
            async for line in response.aiter_lines():
                events += line.startswith("data: {")
                if events == 4 * n:
                    break
        await gateway.engine.aborted.get()
    assert (await billed(gateway, 1))["completion_tokens"] == 4 * n


async def test_a_stream_cut_by_the_engine_is_billed_as_far_as_it_came(gateway: Gateway) -> None:
    gateway.engine.pause_after = 3
    async with gateway.http() as http, http.stream("POST", "/v1/completions", json=TEXT | {"stream": True}) as response:
        lines = response.aiter_lines()
        text = await anext(lines)
        await gateway.engine.paused.wait()
        await gateway.engine.kill()
        text += "".join([line async for line in lines])
    assert '"error"' in text
    assert "[DONE]" not in text
    shown = text.count('"finish_reason":null')  # one token an event; what was on its way is lost
    assert 0 < shown <= 3
    assert (await billed(gateway, 1))["completion_tokens"] == shown


async def test_half_a_character_is_not_billed(gateway: Gateway) -> None:
    """Its text was held back when the engine died, and the client received only an error."""
    gateway.engine.respond_with("\U00010348")  # in no vocabulary as a whole
    gateway.engine.pause_after = 1
    async with gateway.http() as http:
        cut = asyncio.create_task(http.post("/v1/completions", json=TEXT | {"stream": True}))
        await gateway.engine.paused.wait()
        await gateway.engine.kill()
        assert (await cut).status_code == 503
    await gateway.engine.start()
    assert agrees(await billed(gateway, 1), reported() | {"requests": 1})


async def test_what_is_computed_is_metered_beside_what_is_delivered(gateway: Gateway) -> None:
    """Behind a stop string the engine had gone on, which is not billed."""
    gateway.engine.respond_with("The quick brown fox STOP here jumps over the lazy dog and more and more")
    gateway.engine.cached_tokens = 2
    cut = (await gateway.openai().completions.create(**TEXT | {"max_tokens": 60}, stop=["STOP"])).usage
    assert cut is not None
    totals = await billed(gateway, 1)
    assert agrees(totals, reported(cut))
    assert totals["computed_prompt_tokens"] == cut.prompt_tokens - 2
    assert cut.completion_tokens <= totals["generated_tokens"] < 60


async def test_rejected_requests_cost_nothing(gateway: Gateway) -> None:
    async with gateway.http() as http:
        for body in (TEXT | {"model": "nobodys"}, TEXT | {"max_tokens": 10_000}, TEXT | {"n": 10**9}, {}):
            assert (await http.post("/v1/completions", json=body)).status_code >= 400
        assert (await http.post("/v1/completions", json=TEXT)).status_code == 200
    await billed(gateway, 1)


async def test_a_client_cannot_hide_requests_behind_one_id(gateway: Gateway) -> None:
    async with gateway.http() as http:
        for _ in range(3):
            await http.post("/v1/completions", json=TEXT, headers={"x-request-id": "always-the-same"})
    assert (await billed(gateway, 3))["completion_tokens"] == 3 * 12


async def test_another_tenants_usage_is_not_visible(gateway: Gateway) -> None:
    async with gateway.http() as http:
        await http.post("/v1/completions", json=TEXT)
    await billed(gateway, 1)
    async with gateway.http(gateway.other_key) as http:
        answer = (await http.get("/v1/usage", params={"group_by": "key,adapter,model"})).json()
        assert answer["data"] == []
        assert answer["totals"]["requests"] == 0
        row = (await http.get("/v1/usage", params={"key_id": gateway.key.split("-")[1]})).json()
        assert row["totals"]["requests"] == 0


async def test_usage_continues_after_a_restart(
    config: GatewayConfig, engine: StubEngine, tenants: tuple[str, str, str]
) -> None:
    for round_ in range(1, 3):
        async with serving(config, engine, tenants) as gateway:
            await gateway.until_ready()
            async with gateway.http() as http:
                await http.post("/v1/completions", json=TEXT)
        assert len(await ledger_rows(config.database_url)) == round_
    assert list(config.usage_dir.iterdir()) == []


async def _listen(http: httpx.AsyncClient, received: asyncio.Semaphore) -> None:
    async with http.stream("POST", "/v1/completions", json=TEXT | {"stream": True}) as response:
        async for line in response.aiter_lines():
            if line.startswith("data: {"):
                received.release()


@pytest.mark.parametrize("reported_tokens", thinned([0, 1, 7], fast={1}))
async def test_a_killed_gateway_bills_the_delivered_tokens(
    config: GatewayConfig, engine: StubEngine, tenants: tuple[str, str, str], reported_tokens: int
) -> None:
    """Also while another request, which does not stream, has delivered nothing."""
    engine.script = lambda submit: list(range(100, 150))
    engine.pause_after = reported_tokens
    async with gateway_in_a_process(config, engine, tenants) as own, own.gateway.http() as http:
        received = asyncio.Semaphore(0)
        requests = [
            asyncio.create_task(http.post("/v1/completions", json=TEXT)),
            asyncio.create_task(_listen(http, received)),
        ]
        for _ in range(reported_tokens):
            await received.acquire()
        while len(engine.submits) < 2:
            await asyncio.sleep(0.01)
        own.process.kill()
        await own.process.wait()
        await asyncio.wait(requests)
        assert all(request.exception() is not None for request in requests)
    async with serving(config, engine, tenants) as gateway:
        totals = await billed(gateway, 2)
    prompt = len(engine.submits[0].prompt_token_ids)
    assert (totals["completion_tokens"], totals["prompt_tokens"]) == (reported_tokens, prompt if reported_tokens else 0)
    rows = await ledger_rows(config.database_url)
    assert {row.outcome for row in rows.values()} == {"crashed"}
    assert list(config.usage_dir.iterdir()) == []


async def test_a_killed_gateway_returns_nothing_to_the_limits(
    config: GatewayConfig, engine: StubEngine, tenants: tuple[str, str, str], redis_server: RedisServer
) -> None:
    """Its lease would expire and give everything back, and hold its place until then."""
    config = replace(config, redis_url=redis_server.url)
    engine.script = lambda submit: list(range(100, 150))
    engine.pause_after = 7
    async with gateway_in_a_process(config, engine, tenants) as own, own.gateway.http() as http:
        async with own.gateway.admin() as admin:
            limits = {"limits": {"tokens_per_day": 1000, "max_concurrency": 1}}
            assert (await admin.patch(f"/admin/v1/tenants/{own.gateway.tenant_id}", json=limits)).status_code == 200
        heard = asyncio.Semaphore(0)
        request = asyncio.create_task(_listen(http, heard))
        for _ in range(7):
            await heard.acquire()
        own.process.kill()
        await own.process.wait()
        await asyncio.wait([request])
        assert request.exception() is not None
    engine.pause_after = None
    async with serving(config, engine, tenants) as gateway:
        await billed(gateway, 1)
        async with asyncio.timeout(20):
            while len(list(config.usage_dir.iterdir())) > 1:
                await asyncio.sleep(0.02)
        async with gateway.http() as http:
            assert (await http.post("/v1/completions", json=TEXT)).status_code == 200
        assert gateway.services is not None
        limiter = gateway.services.admission.limiter
        await limiter._pipelines[gateway.tenant_id].wait_settled()
        used = limiter._pipelines[gateway.tenant_id].observed.subjects["t"][1]
        prompt = len(engine.submits[0].prompt_token_ids)
        assert (used.day_tokens, used.in_flight) == (prompt + 7 + prompt + 12, 0)
