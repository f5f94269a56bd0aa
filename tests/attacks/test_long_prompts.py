"""Long prompts, with the real tokenizer: no other request waits for them, and they are bounded and paid for."""

import asyncio
import os
import random
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx
import pytest
import pytest_asyncio
from tokenizers import Tokenizer

from loragate.adapter_store.auth.principal import TenantPrincipal
from loragate.gateway.limits.lease import Lease
from loragate.gateway.text.base_model import BaseModel
from loragate.prompts import tokenizer as tokenizer_module
from loragate.prompts.tokenizer import TextTokenizer
from tests.gateway.gateway_setup import new_config, new_tenants, stub_engine
from tests.gateway.running_gateway import Gateway, serving
from tests.gateway.tiny_model import MODEL_ID

pytestmark = pytest.mark.asyncio(loop_scope="session")

CONTEXT = 1_100_000  # tokens


def words(count: int) -> str:
    """Return random words of nine letters: every one is another, so that no cache of the tokenizer's helps."""
    random_ = random.Random(0)
    return " ".join("".join(random_.choices("abcdefghijklmnopqrstuvwxyz", k=9)) for _ in range(count))


LONG = words(10_000)[:100_000]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def standing(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gateway]:
    async with stub_engine(tokenizer, max_model_len=CONTEXT) as engine:
        config = await new_config(tmp_path_factory.mktemp("long"), engine)
        config = replace(config, heartbeat_timeout=3600.0)
        async with serving(config, engine, await new_tenants(config)) as gateway:
            await gateway.until_ready()
            yield gateway


@asynccontextmanager
async def longest_pause() -> AsyncIterator[list[float]]:
    """The longest time for which the event loop did nothing else."""
    longest, done = [0.0], asyncio.Event()

    async def tick() -> None:
        last = time.monotonic()
        while not done.is_set():
            await asyncio.sleep(0.002)
            longest[0], last = max(longest[0], time.monotonic() - last), time.monotonic()

    ticking = asyncio.create_task(tick())
    try:
        yield longest
    finally:
        done.set()
        await ticking


def body_of(path: str, text: str) -> dict[str, Any]:
    match path:
        case "/v1/chat/completions":
            return {"model": MODEL_ID, "messages": [{"role": "user", "content": text}]}
        case "/v1/completions":
            return {"model": MODEL_ID, "prompt": text, "max_tokens": 1}
    return {"model": MODEL_ID, "input": text}


PATHS = ["/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/embeddings"]


@pytest.mark.parametrize("path", PATHS[:2])
async def test_the_loop_runs_while_a_long_prompt_is_tokenized(standing: Gateway, path: str) -> None:
    """Two megabytes, a real tokenizer. If it held the interpreter, the loop would stand still for most of that time."""
    more_than_the_context = words(205_000)
    async with longest_pause() as pause:
        started = time.monotonic()
        async with standing.http() as http:
            answer = await http.post(path, json=body_of(path, more_than_the_context))
        took = time.monotonic() - started
    assert answer.json()["error"]["code"] == "context_length_exceeded"
    assert pause[0] < took / 2


async def test_another_tenants_requests_are_answered_meanwhile(
    standing: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many long prompts a tenant sends, and however long they take."""
    go, really = threading.Event(), TextTokenizer.encode_text

    def encode_text(self: TextTokenizer, text: str) -> list[int]:
        assert text != LONG or go.wait(30), "the other tenant was not answered"
        return really(self, text)

    monkeypatch.setattr(TextTokenizer, "encode_text", encode_text)
    async with standing.http() as http, standing.http(standing.other_key) as other:
        flood = [asyncio.create_task(http.post("/v1/completions", json=body_of(PATHS[1], LONG))) for _ in range(8)]
        for _ in range(3):
            body = body_of("/v1/completions", "one two " * 1000)  # long enough for a thread
            assert (await other.post("/v1/completions", json=body)).status_code == 200
        assert not any(request.done() for request in flood)
        go.set()
        assert {(await request).status_code for request in flood} == {200}


async def test_no_more_is_tokenized_than_shows_that_it_is_too_long(
    standing: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    really = TextTokenizer._encoding

    def encoding(self: TextTokenizer, text: str, **options: bool) -> Any:
        read.append(len(text))
        return really(self, text, **options)

    context = 20_000
    monkeypatch.setattr(BaseModel, "max_model_len", context)
    monkeypatch.setattr(TextTokenizer, "_encoding", encoding)
    async with standing.http() as http:
        rare = "\U00012345" * (3 * context)
        assert (await http.post("/v1/completions", json=body_of(PATHS[1], rare))).status_code == 400
        assert read == [context]
        read.clear()
        for path in PATHS:
            answer = await http.post(path, json=body_of(path, "x" * (16 * context + 1)))
            assert answer.json()["error"]["code"] == "context_length_exceeded"
        assert not read


async def test_words_are_not_looked_for_where_the_number_of_tokens_shows_it(
    standing: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Finding them takes three times as long as tokenizing, and holds the interpreter."""
    context = 20_000
    monkeypatch.setattr(BaseModel, "max_model_len", context)
    monkeypatch.setattr(tokenizer_module, "_stable_tokens", None)  # nothing may use it
    async with standing.http() as http:
        for path in PATHS:
            answer = await http.post(path, json=body_of(path, "\U00012345" * (3 * context)))
            assert answer.json()["error"]["code"] == "context_length_exceeded"


@pytest.mark.skipif(sys.platform != "linux", reason="threads have no priorities of their own")
async def test_it_is_tokenized_at_a_lower_priority(standing: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenant may have a thread busy all the time, on the processors of the event loop and the engine."""
    found, really = list[int](), TextTokenizer.encode_text

    def encode_text(self: TextTokenizer, text: str) -> list[int]:
        found.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
        return really(self, text)

    monkeypatch.setattr(TextTokenizer, "encode_text", encode_text)
    async with standing.http() as http:
        for text in ("one two", LONG):
            assert (await http.post("/v1/completions", json=body_of(PATHS[1], text))).status_code == 200
    short, long = found
    assert long > short


async def test_a_tenant_uses_no_more_of_the_budget_than_it_leaves(standing: Gateway) -> None:
    assert standing.services is not None
    threads = standing.services.preparer._tokenizer._threads
    too_much = body_of(PATHS[1], LONG) | {"max_tokens": CONTEXT}
    free, threads._free = threads._free, 4 * len(LONG)
    try:
        async with standing.http() as http:
            flood = [http.post("/v1/completions", json=too_much) for _ in range(4)]
            answers = await asyncio.gather(*flood)
        assert sorted(answer.status_code for answer in answers) == [400, 400, 429, 429]
        (code,) = {answer.json()["error"]["code"] for answer in answers if answer.status_code == 429}
        assert code == "overloaded"
        assert threads._free == 4 * len(LONG)
        assert not threads._held
    finally:
        threads._free = free


async def _limit(gateway: Gateway, **limits: int | None) -> None:
    async with gateway.admin() as admin:
        patched = await admin.patch(f"/admin/v1/tenants/{gateway.tenant_id}", json={"limits": limits})
    assert patched.status_code == 200, patched.text


async def test_limits_are_charged_before_a_long_prompt_is_tokenized(
    standing: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _limit(standing, requests_per_minute=3)
    try:
        async with standing.http() as http:
            accepted: httpx.Response = await http.post("/v1/completions", json=body_of(PATHS[1], LONG))
            assert accepted.status_code == 200
            assert accepted.headers["x-ratelimit-remaining-requests"] == "2", "it is charged once"
            too_much = body_of(PATHS[1], LONG) | {"max_tokens": CONTEXT}
            for _ in range(2):
                assert (await http.post("/v1/completions", json=too_much)).status_code == 400
            monkeypatch.setattr(TextTokenizer, "_encoding", None)  # nothing may use it now
            for path in PATHS:
                assert (await http.post(path, json=body_of(path, LONG))).status_code == 429
    finally:
        await _limit(standing, requests_per_minute=600_000)


async def test_an_estimate_is_settled_to_what_a_long_prompt_used(standing: Gateway) -> None:
    assert standing.services is not None
    limiter = standing.services.admission.limiter

    async def used(text: str) -> tuple[int, int]:
        """Return what the response says, and what the limits have counted today."""
        async with standing.http() as http:
            answer = await http.post("/v1/completions", json=body_of(PATHS[1], text))
        while limiter.unsettled:
            await asyncio.sleep(0.01)
        _, state, _ = limiter._pipeline(standing.tenant_id).observed.subjects["t"]
        return answer.json()["usage"]["total_tokens"], state.day_tokens

    await _limit(standing, tokens_per_day=10**9)
    try:
        _, before = await used("one two")
        reported, after = await used(LONG)
        assert reported > len(LONG) // 8 + 1, "more than was estimated"
        assert after - before == reported
    finally:
        await _limit(standing, tokens_per_day=None)


async def test_what_was_charged_for_a_request_that_is_rejected_later_is_given_back(
    standing: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(Lease, "__del__")
    await _limit(standing, max_concurrency=1)
    try:
        async with standing.http() as http:
            bad = body_of(PATHS[1], LONG) | {"min_tokens": 9}
            assert (await http.post("/v1/completions", json=bad)).status_code == 400
            assert (await http.post("/v1/completions", json=body_of(PATHS[1], LONG))).status_code == 200
    finally:
        await _limit(standing, max_concurrency=None)


async def test_a_lease_that_is_dropped_holds_no_place(standing: Gateway) -> None:
    """A request may be charged and then never begin, for example because its client leaves in between."""
    services = standing.services
    assert services is not None
    await _limit(standing, max_concurrency=1)
    try:
        async with standing.http() as http:
            body = body_of(PATHS[1], "one two")
            assert (await http.post("/v1/completions", json=body)).status_code == 200
            caller = await services.authenticator.principal(standing.key)
            assert isinstance(caller, TenantPrincipal)
            lease = await services.admission.limiter.admit(caller, None, 1)
            assert (await http.post("/v1/completions", json=body)).status_code == 429
            del lease
            assert (await http.post("/v1/completions", json=body)).status_code == 200
    finally:
        await _limit(standing, max_concurrency=None)
