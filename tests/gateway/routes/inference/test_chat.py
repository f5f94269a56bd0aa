"""Chat completions through the official client."""

import pytest

from tests.gateway.running_gateway import Gateway
from tests.gateway.tiny_model import MODEL_ID

pytestmark = pytest.mark.asyncio(loop_scope="module")

QUESTION = [{"role": "user", "content": "A question about stars"}]


@pytest.fixture
def gateway(shared_gateway: Gateway) -> Gateway:
    return shared_gateway


async def test_a_response_that_is_not_streamed(gateway: Gateway) -> None:
    gateway.engine.respond_with("an answer about the sun 🙂")
    async with gateway.openai() as client:
        answer = await client.chat.completions.create(model=MODEL_ID, messages=QUESTION)
    assert answer.object == "chat.completion"
    assert answer.model == MODEL_ID
    (choice,) = answer.choices
    assert choice.message.role == "assistant"
    assert choice.message.content == "an answer about the sun 🙂"
    assert choice.finish_reason == "stop"
    submit = gateway.engine.submits[0]
    assert answer.usage.prompt_tokens == len(submit.prompt_token_ids)
    said = gateway.engine.tokenizer.encode("an answer about the sun 🙂", add_special_tokens=False).ids
    assert answer.usage.completion_tokens == len(said) + 1  # with EOS
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


async def test_prompt_is_the_rendered_template(gateway: Gateway) -> None:
    async with gateway.openai() as client:
        await client.chat.completions.create(
            model=MODEL_ID,
            messages=[
                {"role": "developer", "content": "Be brief."},
                {"role": "user", "content": [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]},
            ],
        )
    prompt = list(gateway.engine.submits[0].prompt_token_ids)
    assert gateway.engine.tokenizer.decode(prompt, skip_special_tokens=False) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
    )


async def test_stream_has_openais_shapes(gateway: Gateway) -> None:
    gateway.engine.respond_with("an answer about the sun 🙂")
    async with gateway.openai() as client:
        stream = await client.chat.completions.create(
            model=MODEL_ID, messages=QUESTION, stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
    assert {chunk.id for chunk in chunks} == {chunks[0].id}
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[0].choices[0].delta.content == ""
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1])
    assert text == "an answer about the sun 🙂"
    assert [chunk.choices[0].finish_reason for chunk in chunks[:-1]] == [None] * (len(chunks) - 2) + ["stop"]
    assert chunks[-1].choices == []
    assert chunks[-1].usage.total_tokens > 0
    assert all(chunk.usage is None for chunk in chunks[:-1])


async def test_bytes_of_a_stream(gateway: Gateway) -> None:
    body = {"model": MODEL_ID, "messages": QUESTION, "stream": True}
    async with gateway.http() as http:
        response = await http.post("/v1/chat/completions", json=body)
    assert response.headers["content-type"].startswith("text/event-stream")
    events = response.text.split("\n\n")
    assert events[-1] == ""
    assert events[-2] == "data: [DONE]"
    assert all(event.startswith('data: {"id":"chatcmpl-') for event in events[:-2])
    assert '"usage"' not in response.text


async def test_no_character_is_split_in_a_stream(gateway: Gateway) -> None:
    text = "日本語のテキスト 🙂🙃 Ünïcödé"
    gateway.engine.respond_with(text)
    async with gateway.openai() as client:
        stream = await client.chat.completions.create(model=MODEL_ID, messages=QUESTION, stream=True)
        pieces = [chunk.choices[0].delta.content or "" async for chunk in stream]
    assert "".join(pieces) == text
    assert not any("\ufffd" in piece for piece in pieces)


async def test_several_choices_interleave(gateway: Gateway) -> None:
    gateway.engine.respond_with("one two three")
    async with gateway.openai() as client:
        stream = await client.chat.completions.create(model=MODEL_ID, messages=QUESTION, stream=True, n=3)
        texts = {0: "", 1: "", 2: ""}
        order = []
        async for chunk in stream:
            (choice,) = chunk.choices
            texts[choice.index] += choice.delta.content or ""
            order.append(choice.index)
        whole = await client.chat.completions.create(model=MODEL_ID, messages=QUESTION, n=3)
    assert set(texts.values()) == {"one two three"}
    assert order != sorted(order)
    assert [choice.index for choice in whole.choices] == [0, 1, 2]


async def test_logprobs(gateway: Gateway) -> None:
    gateway.engine.respond_with("an 🙂")
    async with gateway.openai() as client:
        answer = await client.chat.completions.create(model=MODEL_ID, messages=QUESTION, logprobs=True, top_logprobs=2)
    content = answer.choices[0].logprobs.content
    assert bytes(byte for token in content for byte in token.bytes).decode() == "an 🙂"
    assert all(token.logprob == -0.5 and len(token.top_logprobs) == 2 for token in content)
    assert content[0].top_logprobs[0].token == content[0].token


async def test_limit_of_tokens(gateway: Gateway) -> None:
    gateway.engine.respond_with("one two three four")
    async with gateway.openai() as client:
        answer = await client.chat.completions.create(model=MODEL_ID, messages=QUESTION, max_completion_tokens=2)
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage.completion_tokens == 2


async def test_without_a_limit_the_context_is_the_limit(gateway: Gateway) -> None:
    async with gateway.openai() as client:
        await client.chat.completions.create(model=MODEL_ID, messages=QUESTION)
    submit = gateway.engine.submits[0]
    assert submit.sampling.max_tokens == 256 - len(submit.prompt_token_ids)


async def test_sampling_reaches_the_engine(gateway: Gateway) -> None:
    async with gateway.openai() as client:
        await client.chat.completions.create(
            model=MODEL_ID,
            messages=QUESTION,
            temperature=0,
            top_p=0.5,
            seed=-1,
            logit_bias={"7": -100},
            presence_penalty=1.5,
            user="alice",
            extra_body={"top_k": 5, "min_p": 0.25, "ignore_eos": True, "stop_token_ids": [9], "min_tokens": 2},
        )
    sampling = gateway.engine.submits[0].sampling
    assert sampling.temperature == 0
    assert sampling.top_p == 0.5
    assert sampling.seed == 2**64 - 1
    assert dict(sampling.logit_bias) == {7: -100}
    assert sampling.presence_penalty == 1.5
    assert (sampling.top_k, sampling.min_p, sampling.ignore_eos) == (5, 0.25, True)
    assert (list(sampling.stop_token_ids), sampling.min_tokens) == ([9], 2)
    assert not sampling.HasField("top_logprobs")


async def test_a_stop_string_truncates_aborts_and_is_not_billed(gateway: Gateway) -> None:
    engine = gateway.engine
    engine.respond_with("The quick brown fox STOP over the lazy dog")
    async with gateway.openai() as client:
        stream = await client.chat.completions.create(
            model=MODEL_ID,
            messages=QUESTION,
            stop=["STOP", "never"],
            stream=True,
            stream_options={"include_usage": True},
            logprobs=True,
        )
        chunks = [chunk async for chunk in stream]
    choices = [choice for chunk in chunks for choice in chunk.choices]
    assert "".join(choice.delta.content or "" for choice in choices) == "The quick brown fox "
    assert choices[-1].finish_reason == "stop"
    sent = [token for choice in choices if choice.logprobs for token in choice.logprobs.content]
    assert "".join(token.token for token in sent) == "The quick brown fox "
    before = engine.tokenizer.encode("The quick brown fox STOP", add_special_tokens=False).ids
    assert chunks[-1].usage.completion_tokens == len(before)
    await engine.aborted.get()


async def test_the_header_is_absent_for_the_base_model(gateway: Gateway) -> None:
    async with gateway.openai() as client:
        raw = await client.chat.completions.with_raw_response.create(model=MODEL_ID, messages=QUESTION)
    assert "x-loragate-adapter" not in raw.headers
    assert int(raw.headers["openai-processing-ms"]) >= 0
    assert raw.headers["x-request-id"].startswith("req_")
