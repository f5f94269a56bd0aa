"""Text completions through the official client."""

import pytest
from openai import BadRequestError

from tests.gateway.running_gateway import Gateway
from tests.gateway.tiny_model import MODEL_ID

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture
def gateway(shared_gateway: Gateway) -> Gateway:
    return shared_gateway


async def test_one_text(gateway: Gateway) -> None:
    gateway.engine.respond_with(" lazy dog.")
    async with gateway.openai() as client:
        answer = await client.completions.create(model=MODEL_ID, prompt="over the")
    assert answer.object == "text_completion"
    assert answer.choices[0].text == " lazy dog."
    assert answer.choices[0].finish_reason == "stop"
    assert gateway.engine.submits[0].sampling.max_tokens == 16


async def test_batch_of_texts_and_n(gateway: Gateway) -> None:
    async with gateway.openai() as client:
        answer = await client.completions.create(model=MODEL_ID, prompt=["one", "two", "three"], n=2, max_tokens=50)
    texts = {choice.index: choice.text for choice in answer.choices}
    assert texts == {0: "one", 1: "one", 2: "two", 3: "two", 4: "three", 5: "three"}
    prompts = sum(len(submit.prompt_token_ids) for submit in gateway.engine.submits)
    assert answer.usage.prompt_tokens == prompts
    assert answer.usage.completion_tokens == 2 * (prompts + 3)  # each with EOS


async def test_draft_tokens_reach_the_engine(gateway: Gateway) -> None:
    async with gateway.openai() as client:
        await client.completions.create(model=MODEL_ID, prompt="one", extra_body={"draft_tokens": 4})
        assert gateway.engine.submits[0].draft_tokens == 4
        with pytest.raises(BadRequestError) as caught:
            await client.completions.create(model=MODEL_ID, prompt="one", extra_body={"draft_tokens": 17})
    assert caught.value.param == "draft_tokens"


@pytest.mark.parametrize("prompt", [[5, 6, 7], [[5, 6, 7]]])
async def test_token_ids(gateway: Gateway, prompt: list[int]) -> None:
    async with gateway.openai() as client:
        await client.completions.create(model=MODEL_ID, prompt=prompt)
    assert list(gateway.engine.submits[0].prompt_token_ids) == [5, 6, 7]


async def test_stream_of_a_batch(gateway: Gateway) -> None:
    async with gateway.openai() as client:
        stream = await client.completions.create(
            model=MODEL_ID,
            prompt=["The quick brown fox", "日本語"],
            stream=True,
            echo=True,
            max_tokens=50,
            stream_options={"include_usage": True},
        )
        texts, reasons, usage = {0: "", 1: ""}, {}, []
        async for chunk in stream:
            usage.append(chunk.usage)
            for choice in chunk.choices:
                texts[choice.index] += choice.text
                if choice.finish_reason:
                    reasons[choice.index] = choice.finish_reason
    assert texts == {0: "The quick brown fox" * 2, 1: "日本語" * 2}
    assert reasons == {0: "stop", 1: "stop"}
    assert usage[:-1] == [None] * (len(usage) - 1)
    assert usage[-1].completion_tokens == usage[-1].prompt_tokens + 2


async def test_echo_of_token_ids_is_text(gateway: Gateway) -> None:
    ids = gateway.engine.tokenizer.encode("lazy").ids
    gateway.engine.respond_with(" dog")
    async with gateway.openai() as client:
        answer = await client.completions.create(model=MODEL_ID, prompt=ids, echo=True)
    assert answer.choices[0].text == "lazy dog"


async def test_logprobs(gateway: Gateway) -> None:
    gateway.engine.respond_with("ab 🙂")
    async with gateway.openai() as client:
        answer = await client.completions.create(model=MODEL_ID, prompt="x", logprobs=2, max_tokens=30)
    logprobs = answer.choices[0].logprobs
    count = len(logprobs.tokens)
    assert len(logprobs.token_logprobs) == len(logprobs.top_logprobs) == len(logprobs.text_offset) == count
    assert logprobs.tokens[0][0] == "a"
    assert logprobs.text_offset[0] == 0
    assert max(logprobs.text_offset) == 3  # the emoji's bytes all begin where it does
    assert any(token.startswith("bytes:\\x") for token in logprobs.tokens)
    assert logprobs.top_logprobs[0][logprobs.tokens[0]] == -0.5


async def test_text_may_begin_with_a_special_token(gateway: Gateway) -> None:
    gateway.engine.script = lambda submit: [0, *gateway.engine.tokenizer.encode("dog").ids]
    async with gateway.openai() as client:
        answer = await client.completions.create(model=MODEL_ID, prompt="x")
    assert answer.choices[0].text == "dog"


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"prompt": []}, "prompt"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": ["a", 1]}, "prompt"),
        ({"prompt": [1, 10_000]}, "prompt"),
        ({"prompt": [-1]}, "prompt"),
        ({"prompt": [[1], []]}, "prompt"),
        ({"prompt": ["a"] * 65}, "prompt"),
        ({"prompt": "a", "suffix": "b"}, "suffix"),
        ({"prompt": "a", "best_of": 3}, "best_of"),
        ({"prompt": "a", "logprobs": 21}, "logprobs"),
        ({"prompt": "a", "max_tokens": 0}, "max_tokens"),
    ],
)
async def test_bad_requests_name_the_field(gateway: Gateway, body: dict[str, object], param: str) -> None:
    async with gateway.http() as http:
        response = await http.post("/v1/completions", json={"model": MODEL_ID, **body})
    assert response.status_code == 400
    assert response.json()["error"]["param"] == param
    assert gateway.engine.submits == []


async def test_a_prompt_longer_than_the_context(gateway: Gateway) -> None:
    async with gateway.openai() as client:
        with pytest.raises(BadRequestError) as rejected:
            await client.completions.create(model=MODEL_ID, prompt=[5] * 250, max_tokens=10)
    assert rejected.value.code == "context_length_exceeded"
    assert rejected.value.param == "prompt"
    assert rejected.value.body["message"] == (
        "This model's maximum context length is 256 tokens. However, you requested 260 tokens (250 in the prompt, "
        "10 in the completion). Please reduce the length of the prompt or completion."
    )


def test_omitted_parameters_use_the_models_recommendation() -> None:
    from loragate.gateway.schemas.inference.completions import CompletionRequest
    from loragate.v1 import engine_pb2 as pb

    recommended = pb.SamplingDefaults(temperature=0.0, top_p=0.8, top_k=20)
    open_ = CompletionRequest.model_validate({"model": "m", "prompt": "p"})
    said = CompletionRequest.model_validate({"model": "m", "prompt": "p", "temperature": 0.5, "top_p": 1, "top_k": -1})
    chosen = open_.sampling(5, None, recommended)
    assert (chosen.temperature, round(chosen.top_p, 3), chosen.top_k) == (0.0, 0.8, 20)
    chosen = said.sampling(5, None, recommended)
    assert (chosen.temperature, chosen.top_p, chosen.top_k) == (0.5, 1.0, 0)
    assert open_.sampling(5, None, pb.SamplingDefaults()).temperature == 1.0
