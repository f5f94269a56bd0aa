"""POST /tokenize and /detokenize, in vLLM's form."""

from typing import Any

import pytest
from tokenizers import Tokenizer

from tests.gateway.running_gateway import Gateway
from tests.gateway.tiny_model import MODEL_ID

pytestmark = pytest.mark.asyncio(loop_scope="module")

HELLO = [{"role": "user", "content": "Hello"}]
TURN = "<|im_start|>user\nHello<|im_end|>\n"


@pytest.fixture
def gateway(shared_gateway: Gateway) -> Gateway:
    return shared_gateway


async def post(gateway: Gateway, path: str, status: int = 200, **body: Any) -> Any:
    async with gateway.http() as http:
        response = await http.post(path, json=body)
    assert response.status_code == status, response.text
    return response.json() if status == 200 else response.json()["error"]


async def test_a_prompt_and_back(gateway: Gateway, tokenizer: Tokenizer) -> None:
    found = await post(gateway, "/tokenize", model=MODEL_ID, prompt="A question about stars", return_token_strs=True)
    assert found["tokens"] == tokenizer.encode("A question about stars").ids
    assert found["token_strs"] == [tokenizer.id_to_token(each) for each in found["tokens"]]
    assert (found["count"], found["max_model_len"]) == (len(found["tokens"]), 256)
    back = await post(gateway, "/detokenize", model=MODEL_ID, tokens=found["tokens"])
    assert back == {"prompt": "A question about stars"}
    assert gateway.engine.submits == []


@pytest.mark.parametrize(
    ("fields", "rendered"),
    [
        ({}, f"{TURN}<|im_start|>assistant\n"),
        ({"add_generation_prompt": False}, TURN),
        ({"add_generation_prompt": None, "continue_final_message": True}, TURN.removesuffix("<|im_end|>\n")),
    ],
)
async def test_a_chat_is_rendered(gateway: Gateway, fields: dict[str, Any], rendered: str) -> None:
    found = await post(gateway, "/tokenize", messages=HELLO, **fields)
    assert found["token_strs"] is None
    assert await post(gateway, "/detokenize", tokens=found["tokens"]) == {"prompt": rendered}


async def test_the_tokens_are_those_that_a_completion_is_charged_for(gateway: Gateway, upload: Any) -> None:
    await upload("mine")
    found = await post(gateway, "/tokenize", model="mine", messages=HELLO)
    async with gateway.openai() as client:
        answer = await client.chat.completions.create(model="mine", messages=HELLO)
    assert answer.usage.prompt_tokens == found["count"]


async def test_nothing_and_much(gateway: Gateway) -> None:
    assert (await post(gateway, "/tokenize", prompt=""))["count"] == 0
    assert (await post(gateway, "/detokenize", tokens=[]))["prompt"] == ""
    for body in ({"prompt": "x y " * 3000}, {"prompt": "x" * 2_000_000}):
        assert (await post(gateway, "/tokenize", 400, **body))["code"] == "context_length_exceeded"
    assert (await post(gateway, "/detokenize", 400, tokens=[1] * 257))["code"] == "context_length_exceeded"


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {}, "prompt"),
        ("/tokenize", {"prompt": "x", "messages": HELLO}, "prompt"),
        ("/tokenize", {"prompt": ["x"]}, "prompt"),
        ("/tokenize", {"prompt": "x", "continue_final_message": True}, "continue_final_message"),
        (
            "/tokenize",
            {"messages": HELLO, "add_generation_prompt": True, "continue_final_message": True},
            "continue_final_message",
        ),
        ("/tokenize", {"messages": []}, "messages"),
        ("/detokenize", {}, "tokens"),
        ("/detokenize", {"tokens": [-1]}, "tokens.0"),
        ("/detokenize", {"tokens": [99999]}, "tokens"),
    ],
)
async def test_bad_requests_name_their_field(gateway: Gateway, path: str, body: dict[str, Any], param: str) -> None:
    assert (await post(gateway, path, 400, **body))["param"] == param


async def test_models_and_keys_are_as_for_completions(gateway: Gateway) -> None:
    for path, body in (("/tokenize", {"prompt": "x"}), ("/detokenize", {"tokens": [1]})):
        assert (await post(gateway, path, 404, model="none", **body))["code"] == "model_not_found"
        async with gateway.http("nothing") as http:
            assert (await http.post(path, json=body)).status_code == 401


async def test_the_limits_of_requests_and_of_tokens_hold(gateway: Gateway, upload: Any) -> None:
    await upload("limited")
    async with gateway.http() as http:
        for limits, path, body in (
            ({"requests_per_minute": 2}, "/tokenize", {"prompt": "x"}),
            ({"tokens_per_minute": 20}, "/detokenize", {"tokens": [1] * 10}),
        ):
            patched = await http.patch("/v1/adapters/limited", json={"limits": limits})
            assert patched.status_code == 200, patched.text
            answers = [await http.post(path, json={"model": "limited", **body}) for _ in range(3)]
            assert [each.status_code for each in answers] == [200, 200, 429]
            assert answers[0].headers["x-loragate-adapter"].startswith("limited:1@")
            kind = next(iter(limits)).partition("_")[0]
            assert answers[0].headers[f"x-ratelimit-limit-{kind}"] == str(limits[f"{kind}_per_minute"])
            lifted = await http.patch("/v1/adapters/limited", json={"limits": dict.fromkeys(limits)})
            assert lifted.status_code == 200
