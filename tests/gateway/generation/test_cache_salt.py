"""Which requests share computed prompts, and what the response reports of it."""

import hmac
from dataclasses import replace

import pytest

from loragate.gateway.config.gateway import GatewayConfig
from loragate.gateway.generation.cache_salt import CacheSalts
from tests.gateway.running_gateway import Gateway, serving
from tests.gateway.stub_engine import StubEngine
from tests.gateway.tiny_model import MODEL_ID

QUESTION = [{"role": "user", "content": "A question about stars"}]


async def test_each_tenant_has_its_own_salt(gateway: Gateway) -> None:
    for key in (gateway.key, gateway.key, gateway.other_key):
        async with gateway.openai(key) as client:
            await client.chat.completions.create(model=MODEL_ID, messages=QUESTION)
    mine, again, foreign = [submit.cache_salt for submit in gateway.engine.submits]
    assert mine == again
    assert mine != foreign
    assert mine, "an empty salt would disable sharing"
    assert len({submit.share.tenant_id for submit in gateway.engine.submits}) == 2


def test_a_salt_needs_the_secret_key() -> None:
    secret = b"a secret key for the tests"
    assert CacheSalts(secret).of("tn_1") == CacheSalts(secret).of("tn_1"), "in every worker, after every restart"
    guesses = {hmac.digest(key, b"tn_1", "sha256") for key in (b"", b"tn_1", secret)}
    assert CacheSalts(secret).of("tn_1") not in guesses
    assert CacheSalts(b"another secret key").of("tn_1") != CacheSalts(secret).of("tn_1")


@pytest.mark.parametrize("n", [1, 2])
async def test_usage_reports_cached_tokens_once_a_prompt(gateway: Gateway, n: int) -> None:
    gateway.engine.cached_tokens = 3
    stream = {"stream": True, "stream_options": {"include_usage": True}}
    async with gateway.openai() as client:
        chat = await client.chat.completions.create(model=MODEL_ID, messages=QUESTION, n=n)
        chunks = await client.chat.completions.create(model=MODEL_ID, messages=QUESTION, n=n, **stream)
        usages = [chat.usage, [chunk async for chunk in chunks][-1].usage]
        text = await client.completions.create(model=MODEL_ID, prompt=["stars and", "moons and"], n=n)
        pieces = await client.completions.create(model=MODEL_ID, prompt=["stars and", "moons and"], n=n, **stream)
        usages += [text.usage, [piece async for piece in pieces][-1].usage]
    assert [usage.prompt_tokens_details.cached_tokens for usage in usages] == [3, 3, 6, 6]


async def test_users_share_nothing_where_the_operator_says_so(
    config: GatewayConfig, engine: StubEngine, tenants: tuple[str, str, str]
) -> None:
    async with serving(replace(config, prefix_cache_by_user=True), engine, tenants) as gateway:
        await gateway.until_ready()
        for user in ({"user": "ada"}, {"user": "bob"}, {"safety_identifier": "ada"}, {}):
            async with gateway.openai() as client:
                await client.chat.completions.create(model=MODEL_ID, messages=QUESTION, **user)
        async with gateway.openai() as client:
            await client.embeddings.create(model=MODEL_ID, input="stars", user="bob")
    ada, bob, again, without_user, vector = [submit.cache_salt for submit in engine.submits]
    assert len({ada, bob, without_user}) == 3
    assert (again, vector) == (ada, bob)
