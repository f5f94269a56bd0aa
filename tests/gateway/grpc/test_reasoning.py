"""Reasoning over gRPC, with the same fields as over HTTP."""

from collections.abc import AsyncIterator

import pytest
from tokenizers import Tokenizer

from loragate.v1 import inference_pb2 as pb
from tests.gateway import tiny_model
from tests.gateway.gateway_setup import stub_engine
from tests.gateway.grpc_client import Client
from tests.gateway.reasoning.test_chat import ANSWER, TEMPLATE, TEXT, THOUGHT
from tests.gateway.stub_engine import StubEngine


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return tiny_model.byte_level_tokenizer("<think>", "</think>")


@pytest.fixture
async def engine(tokenizer: Tokenizer) -> AsyncIterator[StubEngine]:
    async with stub_engine(tokenizer, max_model_len=4096, chat_template=TEMPLATE) as stub:
        yield stub


def request() -> pb.ChatRequest:
    return pb.ChatRequest(
        model=tiny_model.MODEL_ID,
        messages=[
            pb.ChatMessage(role="user", content="Why?"),
            pb.ChatMessage(role="assistant", content=ANSWER, reasoning=THOUGHT),
            pb.ChatMessage(role="user", content="Really?"),
        ],
        reasoning_effort="high",
        thinking_token_budget=9,
    )


async def test_chat(client: Client, engine: StubEngine) -> None:
    engine.respond_with(TEXT)
    answer = await client.inference.Chat(request(), metadata=client.metadata)
    message = answer.choices[0].message
    assert (message.reasoning, message.content, answer.text) == (THOUGHT, ANSWER, ANSWER)
    assert answer.usage.completion_tokens_details.reasoning_tokens > 0
    prompt = engine.tokenizer.decode(list(engine.submits[-1].prompt_token_ids), skip_special_tokens=False)
    assert f"<think>\n{THOUGHT}\n</think>\n\n{ANSWER}" in prompt
    assert prompt.endswith("[high]")
    assert engine.submits[-1].thinking.max_tokens == 9


async def test_chat_stream(client: Client, engine: StubEngine) -> None:
    engine.respond_with(TEXT)
    chunks = [chunk async for chunk in client.inference.ChatStream(request(), metadata=client.metadata)]
    deltas = [choice.delta for chunk in chunks for choice in chunk.choices]
    assert "".join(delta.reasoning for delta in deltas) == THOUGHT
    assert "".join(delta.content for delta in deltas) == ANSWER
