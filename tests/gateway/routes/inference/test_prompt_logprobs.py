"""Logprobs of prompts: `echo` with `logprobs`, `prompt_logprobs`, and requests that generate nothing."""

from operator import itemgetter
from typing import Any

import httpx
import pytest

from loragate.gateway.generation.prompt_logprobs import MAX_PROMPT_LOGPROBS
from tests.gateway import tiny_model
from tests.gateway.metering.test_accounting import billed
from tests.gateway.running_gateway import Gateway
from tests.gateway.tiny_model import MODEL_ID

pytestmark = pytest.mark.asyncio(loop_scope="module")

TEXT = "The quick 日本 fox"
MESSAGES = [{"role": "user", "content": "Hello there"}]


@pytest.fixture
def gateway(shared_gateway: Gateway) -> Gateway:
    return shared_gateway


@pytest.fixture(scope="module")
def manifest() -> dict[str, Any]:
    return {"max_model_len": 8192, "chat_template": tiny_model.TOOLS_TEMPLATE}


async def post(gateway: Gateway, path: str = "/v1/completions", **body: Any) -> httpx.Response:
    async with gateway.http() as http:
        return await http.post(path, json={"model": MODEL_ID, **body})


async def complete(gateway: Gateway, **body: Any) -> Any:
    response = await post(gateway, **body)
    assert response.status_code == 200, response.text
    return response.json()


def stub_logprobs(ids: list[int]) -> list[float | None]:
    """Return what the stub gives for a prompt."""
    return [None, *(-(token + 1) / 8 for token in ids[1:])]


@pytest.mark.parametrize("by_ids", [False, True])
async def test_echo_with_logprobs(gateway: Gateway, by_ids: bool) -> None:
    gateway.engine.respond_with(" jumps")
    ids = gateway.engine.tokenizer.encode(TEXT).ids
    (choice,) = (await complete(gateway, prompt=ids if by_ids else TEXT, echo=True, logprobs=2))["choices"]
    logprobs = choice["logprobs"]
    assert choice["text"] == f"{TEXT} jumps"
    assert logprobs["token_logprobs"][: len(ids)] == stub_logprobs(ids)
    assert set(logprobs["token_logprobs"][len(ids) :]) == {-0.5}
    assert logprobs["top_logprobs"][0] is None
    assert list(logprobs["top_logprobs"][1].values()) == [-0.5, -1.0]
    assert {len(values) for values in logprobs.values()} == {len(logprobs["tokens"])}
    assert logprobs["text_offset"] == sorted(logprobs["text_offset"])
    assert logprobs["text_offset"][len(ids)] == len(TEXT), "the completion's offsets count the prompt"
    for token, offset in zip(logprobs["tokens"], logprobs["text_offset"], strict=True):
        assert token.startswith("bytes:") or choice["text"][offset:].startswith(token) or token == "</s>"
    (submit,) = gateway.engine.submits
    assert (submit.prompt_logprobs, submit.prompt_only) == (2, False)


@pytest.mark.parametrize("max_tokens", [0, 1])
@pytest.mark.parametrize("ends", [False, True])
async def test_log_likelihoods_of_lm_evaluation_harness(gateway: Gateway, max_tokens: int, ends: bool) -> None:
    """The request and the arithmetic of its model `local-completions`, whose slices assume that each completion has
    `max_tokens` tokens, of which an EOS is one."""
    gateway.engine.script = lambda submit: [] if ends else [65, 66]
    prompts, context_lengths = [[5, 6, 7, 8, 9], [70, 71, 72]], [2, 1]
    answer = await complete(
        gateway, prompt=prompts, temperature=0, max_tokens=max_tokens, logprobs=1, seed=1234, echo=True
    )
    choices = sorted(answer["choices"], key=itemgetter("index"))
    for choice, prompt, context in zip(choices, prompts, context_lengths, strict=True):
        part = slice(context, -max_tokens or None)
        own, top = choice["logprobs"]["token_logprobs"][part], choice["logprobs"]["top_logprobs"][part]
        assert own == stub_logprobs(prompt)[context:]
        assert sum(own) < 0
        assert [max(each.values()) for each in top] == [-0.5] * len(own)
    assert answer["usage"]["prompt_tokens"] == 8
    assert answer["usage"]["completion_tokens"] == 2 * max_tokens


async def test_a_request_that_generates_nothing(gateway: Gateway) -> None:
    answer = await complete(gateway, prompt=TEXT, echo=True, max_tokens=0)
    (choice,) = answer["choices"]
    assert (choice["text"], choice["finish_reason"], choice["logprobs"]) == (TEXT, "length", None)
    (submit,) = gateway.engine.submits
    assert submit.prompt_only
    assert not submit.HasField("prompt_logprobs")
    assert answer["usage"]["total_tokens"] == answer["usage"]["prompt_tokens"] == len(submit.prompt_token_ids)


async def test_a_prompt_may_fill_the_context(gateway: Gateway) -> None:
    full = [7] * 8192
    assert len((await complete(gateway, prompt=full, prompt_logprobs=0, max_tokens=0))["choices"]) == 1
    for prompt, tokens in ((full, 1), ([*full, 7], 0)):
        response = await post(gateway, prompt=prompt, prompt_logprobs=0, max_tokens=tokens)
        assert response.json()["error"]["code"] == "context_length_exceeded"


def check_prompt(found: list[Any], ids: list[int], top: int) -> None:
    assert found[0] is None
    for entry, token, logprob in zip(found[1:], ids[1:], stub_logprobs(ids)[1:], strict=True):
        assert list(entry) == [str(token + i) for i in range(top + 1)]
        assert (entry[str(token)]["logprob"], entry[str(token)]["rank"]) == (logprob, 2)
        assert [entry[str(token + i)]["rank"] for i in range(1, top + 1)] == list(range(1, top + 1))
        assert all(isinstance(each["decoded_token"], str) for each in entry.values())


async def test_prompt_logprobs_of_completions(gateway: Gateway) -> None:
    """In vLLM's shape, for each prompt and choice; beside `echo` with another number of alternatives."""
    prompts = [[5, 6, 7], [70]]
    fields: dict[str, Any] = {"n": 2, "max_tokens": 3}
    choices = (await complete(gateway, prompt=prompts, prompt_logprobs=2, **fields))["choices"]
    for choice in choices:
        check_prompt(choice["prompt_logprobs"], prompts[choice["index"] // 2], 2)
        assert choice["logprobs"] is None
    echoed = (await complete(gateway, prompt=prompts, prompt_logprobs=1, echo=True, logprobs=0, **fields))["choices"]
    for choice in echoed:
        check_prompt(choice["prompt_logprobs"], prompts[choice["index"] // 2], 1)
        assert not any(choice["logprobs"]["top_logprobs"])
    assert gateway.engine.submits[-1].prompt_logprobs == 1
    plain = (await complete(gateway, prompt=prompts, **fields))["choices"]
    assert all("prompt_logprobs" not in choice for choice in plain)
    assert not gateway.engine.submits[-1].HasField("prompt_logprobs")


async def test_prompt_logprobs_of_chats(gateway: Gateway) -> None:
    gateway.engine.respond_with("Hi")
    response = await post(gateway, "/v1/chat/completions", messages=MESSAGES, prompt_logprobs=1, n=2)
    (submit,) = gateway.engine.submits
    check_prompt(response.json()["prompt_logprobs"], list(submit.prompt_token_ids), 1)
    assert [choice["message"]["content"] for choice in response.json()["choices"]] == ["Hi", "Hi"]


@pytest.mark.parametrize("max_tokens", [0, 4])
async def test_a_stream_echoes_the_same_logprobs(gateway: Gateway, max_tokens: int) -> None:
    """Also where another completion's tokens arrive before the prompt's last logprobs."""
    gateway.engine.script_of = lambda submit, index: [65 + index, 66, 67]
    body = {"prompt": [[5, 6, 7], [70, 71]], "echo": True, "logprobs": 1, "n": 2, "max_tokens": max_tokens}
    whole = (await complete(gateway, **body))["choices"]
    async with gateway.openai() as client:
        stream = await client.completions.create(model=MODEL_ID, stream=True, **body)
        pieces = [choice async for chunk in stream for choice in chunk.choices]
    for expected in whole:
        mine = [piece for piece in pieces if piece.index == expected["index"]]
        assert "".join(piece.text for piece in mine) == expected["text"]
        for name, values in expected["logprobs"].items():
            assert [value for piece in mine for value in getattr(piece.logprobs, name)] == values
        assert mine[-1].finish_reason == expected["finish_reason"]


async def test_completions_wait_for_the_logprobs_of_their_prompt(gateway: Gateway) -> None:
    gateway.engine.script = lambda submit: [65, 66]
    gateway.engine.scores_late = True
    body = {"prompt": [5, 6, 7], "echo": True, "logprobs": 0, "n": 2, "max_tokens": 2}
    first, second = (await complete(gateway, **body))["choices"]
    assert first["logprobs"] == second["logprobs"]
    assert len(first["logprobs"]["tokens"]) == 5
    async with gateway.openai() as client:
        stream = await client.completions.create(model=MODEL_ID, stream=True, **body)
        pieces = [choice async for chunk in stream for choice in chunk.choices if choice.index == 1]
    assert [token for piece in pieces for token in piece.logprobs.tokens] == second["logprobs"]["tokens"]


@pytest.mark.parametrize(
    ("body", "param", "words"),
    [
        ({"prompt": "a", "prompt_logprobs": 21}, "prompt_logprobs", "20"),
        ({"prompt": "a", "prompt_logprobs": -1}, "prompt_logprobs", "0"),
        ({"prompt": "a", "prompt_logprobs": 0, "stream": True}, "prompt_logprobs", "stream"),
        ({"prompt": "a", "max_tokens": 0}, "max_tokens", "echo"),
        ({"prompt": "a", "echo": True, "max_tokens": 0, "min_tokens": 1}, "min_tokens", "0 tokens"),
        ({"prompt": [7] * 6000, "prompt_logprobs": 19, "max_tokens": 1}, "prompt_logprobs", "100000"),
        ({"prompt": [7] * 6000, "echo": True, "logprobs": 1, "n": 9, "max_tokens": 1}, "logprobs", "100000"),
        ({"prompt": [[7] * 6000] * 9, "echo": True, "logprobs": 1, "max_tokens": 0}, "logprobs", "100000"),
        ({"messages": MESSAGES, "prompt_logprobs": 1, "stream": True}, "prompt_logprobs", "stream"),
        ({"messages": MESSAGES, "prompt_logprobs": 1, "max_tokens": 0}, "max_tokens", "1"),
        ({"messages": [{"role": "user", "content": "a" * 8000}], "prompt_logprobs": 20}, "prompt_logprobs", "100000"),
    ],
)
async def test_refusals_say_what_to_do(gateway: Gateway, body: dict[str, Any], param: str, words: str) -> None:
    response = await post(gateway, "/v1/chat/completions" if "messages" in body else "/v1/completions", **body)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == param
    assert words in response.json()["error"]["message"]
    assert gateway.engine.submits == []


async def test_the_largest_response(gateway: Gateway) -> None:
    prompt = [7] * (MAX_PROMPT_LOGPROBS // 21)
    (choice,) = (await complete(gateway, prompt=prompt, prompt_logprobs=20, max_tokens=0))["choices"]
    check_prompt(choice["prompt_logprobs"], prompt, 20)


@pytest.mark.asyncio(loop_scope="function")
async def test_prompts_count_as_ever(own_gateway: Gateway) -> None:
    """For the limits and the bill, once each: a request that generates nothing costs its prompt."""
    async with own_gateway.admin() as admin:
        await admin.patch(f"/admin/v1/tenants/{own_gateway.tenant_id}", json={"limits": {"tokens_per_minute": 6000}})
    prompts = [[5] * 1000, [6] * 800]
    response = await post(own_gateway, prompt=prompts, echo=True, logprobs=1, max_tokens=0)
    assert 4100 <= int(response.headers["x-ratelimit-remaining-tokens"]) <= 4300
    assert (await post(own_gateway, prompt=prompts * 3, echo=True, logprobs=1, max_tokens=0)).status_code == 429
    totals = await billed(own_gateway, 1)
    assert (totals["prompt_tokens"], totals["completion_tokens"]) == (1800, 0)
    assert (totals["computed_prompt_tokens"], totals["generated_tokens"]) == (1800, 0)
