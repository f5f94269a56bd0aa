"""Limits over HTTP."""

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import openai
import pytest
from redis_server import RedisServer

from loragate.gateway.config.gateway import GatewayConfig
from tests.gateway.running_gateway import Gateway, serving
from tests.gateway.stub_engine import StubEngine
from tests.gateway.tiny_model import MODEL_ID

TEXT = {"model": MODEL_ID, "prompt": "one two three", "max_tokens": 8}
PROMPT_TOKENS = 3


@pytest.fixture(params=["local", "redis"])
async def limited(
    config: GatewayConfig, engine: StubEngine, tenants: tuple[str, str, str], request: pytest.FixtureRequest
) -> AsyncIterator[Gateway]:
    """A gateway, with Redis and without."""
    if request.param == "redis":
        config = replace(config, redis_url=request.getfixturevalue("redis_server").url)
    async with serving(config, engine, tenants) as running:
        await running.until_ready()
        yield running


async def _limit(gateway: Gateway, **limits: int | None) -> None:
    async with gateway.admin() as admin:
        patched = await admin.patch(f"/admin/v1/tenants/{gateway.tenant_id}", json={"limits": limits})
    assert patched.status_code == 200, patched.text


async def _send(gateway: Gateway, key: str | None = None, **fields: Any) -> Any:
    async with gateway.http(key) as http:
        return await http.post("/v1/completions", json=TEXT | fields)


async def test_every_response_reports_the_remaining_limits(limited: Gateway) -> None:
    await _limit(limited, requests_per_minute=600, tokens_per_minute=6000)
    async with limited.http() as http:
        for path, body in (
            ("/v1/completions", TEXT),
            ("/v1/completions", TEXT | {"stream": True}),
            ("/v1/chat/completions", {"model": MODEL_ID, "messages": [{"role": "user", "content": "x"}]}),
            ("/v1/embeddings", {"model": MODEL_ID, "input": "x"}),
        ):
            answer = await http.post(path, json=body)
            assert answer.status_code == 200
            assert answer.headers["x-ratelimit-limit-requests"] == "600"
            assert answer.headers["x-ratelimit-limit-tokens"] == "6000"
            assert 590 <= int(answer.headers["x-ratelimit-remaining-requests"]) < 600
            assert 0 < int(answer.headers["x-ratelimit-remaining-tokens"]) < 6000
            for kind in ("requests", "tokens"):
                assert re.fullmatch(r"(\d+m)?[\d.]+s|\d+ms", answer.headers[f"x-ratelimit-reset-{kind}"])


async def test_requests_per_minute(limited: Gateway) -> None:
    await _limit(limited, requests_per_minute=2)
    assert [(await _send(limited)).status_code for _ in range(2)] == [200, 200]
    rejected = await _send(limited)
    error = rejected.json()["error"]
    assert (rejected.status_code, error["type"], error["code"]) == (429, "rate_limit_error", "rate_limit_exceeded")
    assert "this tenant" in error["message"]
    assert "2 requests per minute" in error["message"]
    assert 0 < int(rejected.headers["retry-after"]) <= 30
    assert 0 < int(rejected.headers["retry-after-ms"]) <= 30_000
    assert rejected.headers["x-should-retry"] == "true"
    assert rejected.headers["x-ratelimit-remaining-requests"] == "0"
    assert len(limited.engine.submits) == 2


async def test_the_official_client_retries_in_time(limited: Gateway) -> None:
    """It waits for the time in the headers, and gets its response."""
    await _limit(limited, requests_per_minute=60)
    async with limited.openai(max_retries=2) as client:
        for _ in range(61):
            answer = await client.completions.create(model=MODEL_ID, prompt="x", max_tokens=1)
            assert answer.usage


async def test_settlement_charges_the_actual_tokens(limited: Gateway) -> None:
    """Reserved but unused tokens are available again at once."""
    limited.engine.respond_with("one")
    await _limit(limited, tokens_per_minute=300, tokens_per_day=100_000)  # two reservations are more
    for _ in range(6):
        answer = await _send(limited, max_tokens=150)
        while answer.status_code == 429:  # the last one is being settled
            await asyncio.sleep(0.01)
            answer = await _send(limited, max_tokens=150)
        assert answer.status_code == 200


async def test_an_impossible_request_is_rejected_for_good(limited: Gateway) -> None:
    await _limit(limited, tokens_per_minute=20)
    rejected = await _send(limited, max_tokens=100)
    assert rejected.status_code == 429
    assert rejected.headers["x-should-retry"] == "false"
    assert "requested" in rejected.json()["error"]["message"]
    async with limited.openai(max_retries=2) as client:
        with pytest.raises(openai.RateLimitError):
            await client.completions.create(model=MODEL_ID, prompt="x", max_tokens=100)
    assert limited.engine.submits == []


async def test_an_exhausted_day_is_not_retryable(limited: Gateway) -> None:
    await _limit(limited, tokens_per_day=PROMPT_TOKENS * 4 + 20)
    codes = []
    while 429 not in codes:
        rejected = await _send(limited)
        codes.append(rejected.status_code)
    assert "tokens per day" in rejected.json()["error"]["message"]
    assert rejected.headers["x-should-retry"] == ("false" if int(rejected.headers["retry-after"]) > 60 else "true")


async def test_n_counts_as_one_request_and_all_its_tokens(limited: Gateway) -> None:
    await _limit(limited, requests_per_minute=1, tokens_per_minute=1000)
    answer = await _send(limited, n=4)
    assert answer.status_code == 200
    left = int(answer.headers["x-ratelimit-remaining-tokens"])
    assert 1000 - left >= 4 * TEXT["max_tokens"]


async def test_concurrency(limited: Gateway) -> None:
    await _limit(limited, max_concurrency=1)
    limited.engine.pause_after = 1
    running = asyncio.create_task(_send(limited))
    await limited.engine.paused.wait()
    rejected = await _send(limited)
    assert rejected.status_code == 429
    assert "at the same time" in rejected.json()["error"]["message"]
    limited.engine.resume.set()
    assert (await running).status_code == 200
    await _until(limited, 200)


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_releases_its_place(limited: Gateway, stream: bool) -> None:
    await _limit(limited, max_concurrency=1)
    limited.engine.pause_after = 1
    leaving = asyncio.create_task(_send(limited, stream=stream))
    await limited.engine.paused.wait()
    leaving.cancel()
    await limited.engine.aborted.get()
    limited.engine.pause_after = None
    await _until(limited, 200)


async def test_a_failed_request_releases_its_place(limited: Gateway) -> None:
    await _limit(limited, max_concurrency=1)
    limited.engine.fails = lambda submit: True
    assert (await _send(limited)).status_code == 500
    limited.engine.fails = lambda submit: False
    await _until(limited, 200)


async def _until(gateway: Gateway, status: int) -> None:
    while (await _send(gateway)).status_code != status:
        await asyncio.sleep(0.01)


async def test_requests_without_a_limit_are_estimated_and_extended(limited: Gateway) -> None:
    """256 tokens are reserved, however long the response becomes; all generated tokens count."""
    limited.engine.manifest.max_model_len = 4000
    await limited.engine.kill()
    await limited.engine.start()
    limited.engine.script = lambda submit: [5] * 300
    body = {"model": MODEL_ID, "messages": [{"role": "user", "content": "x"}]}
    async with limited.http() as http:
        answer = await http.post("/v1/chat/completions", json=body)
        while answer.status_code != 200 or answer.json()["usage"]["completion_tokens"] < 300:
            await asyncio.sleep(0.02)  # the gateway has not seen the longer context yet
            answer = await http.post("/v1/chat/completions", json=body)
        prompt_tokens = answer.json()["usage"]["prompt_tokens"]
        await _limit(limited, tokens_per_minute=4000)
        first = await http.post("/v1/chat/completions", json=body)
        assert 4000 - int(first.headers["x-ratelimit-remaining-tokens"]) in range(1, 256 + prompt_tokens + 1)
        left = 4000
        while left > 4000 - 256 - 300:  # the first one's 300 and the next one's estimate
            left = int((await http.post("/v1/completions", json=TEXT)).headers["x-ratelimit-remaining-tokens"])


async def test_keys_and_adapters_have_their_own_limits(limited: Gateway, tmp_path: Any) -> None:
    from tests.gateway import tiny_model

    folder = tiny_model.write_adapter(tmp_path / "poet")
    files = {file.name: (file.name, file.read_bytes()) for file in folder.iterdir()}
    async with limited.http() as http, limited.admin() as admin:
        assert (await http.post("/v1/adapters", data={"name": "poet"}, files=files)).status_code == 201
        adapter = await http.patch("/v1/adapters/poet", json={"limits": {"requests_per_minute": 1}})
        assert adapter.json()["limits"]["requests_per_minute"] == 1
        made = await admin.post(
            f"/admin/v1/tenants/{limited.tenant_id}/keys", json={"limits": {"requests_per_minute": 2}}
        )
    key = made.json()
    assert key["limits"]["requests_per_minute"] == 2
    assert (await _send(limited, model="poet")).status_code == 200
    of_adapter = await _send(limited, model="poet")
    assert (of_adapter.status_code, "the adapter 'poet'" in of_adapter.text) == (429, True)
    assert (await _send(limited, key["secret"])).status_code == 200
    # A rejection by the adapter costs the key nothing.
    assert (await _send(limited, key["secret"], model="poet")).status_code == 429
    assert (await _send(limited, key["secret"])).status_code == 200
    of_key = await _send(limited, key["secret"])
    assert (of_key.status_code, "this key" in of_key.text) == (429, True)
    assert (await _send(limited)).status_code == 200
    async with limited.admin() as admin:
        lifted = await admin.patch(f"/admin/v1/keys/{key['id']}", json={"limits": {"requests_per_minute": None}})
    assert lifted.json()["limits"]["requests_per_minute"] is None


async def test_tenants_limits_in_the_admin_api(limited: Gateway) -> None:
    async with limited.admin() as admin:
        made = await admin.post("/admin/v1/tenants", json={"name": "acme", "limits": {"tokens_per_day": 5}})
        limits = made.json()["limits"]
        assert (limits["tokens_per_day"], limits["max_adapters"]) == (5, None)
        assert limits["requests_per_minute"] == limited.config.default_limits.requests_per_minute
        url = f"/admin/v1/tenants/{made.json()['id']}"
        patched = await admin.patch(url, json={"limits": {"requests_per_minute": None, "max_concurrency": 3}})
        assert patched.json()["limits"] == limits | {"requests_per_minute": None, "max_concurrency": 3}
        assert (await admin.get(url)).json() == patched.json()
        for bad in (-1, 1.5, "3", 10**16):
            rejected = await admin.patch(url, json={"limits": {"max_concurrency": bad}})
            assert (rejected.status_code, rejected.json()["error"]["param"]) == (400, "limits.max_concurrency")


async def test_quotas_apply_at_upload(limited: Gateway, tmp_path: Any) -> None:
    from tests.gateway import tiny_model

    folder = tiny_model.write_adapter(tmp_path / "a")
    files = {file.name: (file.name, file.read_bytes()) for file in folder.iterdir()}
    other = tiny_model.write_adapter(tmp_path / "b", seed=1)
    another = {file.name: (file.name, file.read_bytes()) for file in other.iterdir()}

    async def publish(name: str, files: Any = files) -> Any:
        async with limited.http() as http:
            return await http.post("/v1/adapters", data={"name": name}, files=files)

    size = sum(len(content) for _, content in files.values())
    await _limit(limited, max_adapters=1, max_storage_bytes=2 * size - 1)
    assert (await publish("a")).status_code == 201
    second = await publish("b")
    assert (second.status_code, second.json()["error"]["code"]) == (409, "quota_exceeded")
    assert (await publish("a")).status_code == 201  # a version of the same one, with the same bytes
    third = await publish("a", another)
    assert (third.status_code, "max_storage_bytes" in third.text) == (409, True)
    async with limited.http() as http:
        assert (await http.get("/v1/adapters/a")).json()["latest_version"] == 2
        assert (await http.delete("/v1/adapters/a")).status_code == 200
    assert (await publish("b")).status_code == 201, "of the same bytes"
    assert (await publish("b", another)).status_code == 409, "those of `a` are still there"


async def test_installations_on_one_redis_are_kept_apart(
    config: GatewayConfig, engine: StubEngine, tenants: tuple[str, str, str], redis_server: RedisServer
) -> None:
    """Also those that have the same tenants, because one began as a copy of the other."""
    statuses = []
    for prefix in ("loragate", "loragate", "staging"):
        used_by = replace(config, redis_url=redis_server.url, redis_prefix=prefix)
        async with serving(used_by, engine, tenants) as gateway:
            await gateway.until_ready()
            await _limit(gateway, requests_per_minute=1)
            statuses.append((await _send(gateway)).status_code)
    assert statuses == [200, 429, 200]


async def test_settled_usage_counts_after_a_restart(
    config: GatewayConfig, engine: StubEngine, tenants: tuple[str, str, str], redis_server: RedisServer
) -> None:
    """Daily totals come from the ledger if no backend knows them."""
    for url in (None, redis_server.url):
        used_by = replace(config, redis_url=url)
        async with serving(used_by, engine, tenants) as first:
            await first.until_ready()
            await _limit(first, tokens_per_day=10_000)
            assert (await _send(first)).status_code == 200
        redis_server.flush()
    async with serving(config, engine, tenants) as second:
        await second.until_ready()
        used = 2 * (PROMPT_TOKENS + TEXT["max_tokens"])
        await _limit(second, tokens_per_day=used + PROMPT_TOKENS + TEXT["max_tokens"] - 4)
        assert (await _send(second)).status_code == 429
