"""Anthropic's client: messages, their helper for streams, tools, parsing, and the count of tokens."""

from typing import Any, Literal

from anthropic import Anthropic
from common import (
    ADAPTER,
    BASE,
    KEY,
    PARAMETERS,
    QUESTION,
    SECOND,
    SERVER,
    UNKNOWN_MODEL,
    WEATHER,
    WRONG_KEY,
    failure,
    get_weather,
    report,
)
from pydantic import BaseModel

client = Anthropic(base_url=SERVER, api_key=KEY, max_retries=0)


class Place(BaseModel):
    city: Literal["Rome", "Oslo", "Paris"]


def ask(*messages: Any, model: str = ADAPTER, **more: Any) -> Any:
    return client.messages.create(model=model, messages=list(messages), max_tokens=64, **more)


def user(content: Any) -> Any:
    return {"role": "user", "content": content}


def streamed() -> str:
    with client.messages.stream(model=ADAPTER, messages=[user(QUESTION)], max_tokens=64) as stream:
        text = "".join(stream.text_stream)
        assert stream.get_final_text() == text
    return text


def tool() -> str:
    tools = [{"name": "get_weather", "description": "Get the weather for a city.", "input_schema": PARAMETERS}]
    first = ask(user(WEATHER), model=BASE, tools=tools)
    assert first.stop_reason == "tool_use"
    (call,) = (block for block in first.content if block.type == "tool_use")
    result = {"type": "tool_result", "tool_use_id": call.id, "content": get_weather(**call.input)}
    answer = ask(
        user(WEATHER), {"role": "assistant", "content": first.content}, user([result]), model=BASE, tools=tools
    )
    return str(answer.content[0].text)


def second_turn() -> str:
    first = ask(user(QUESTION))
    answer = ask(user(QUESTION), {"role": "assistant", "content": first.content}, user(SECOND))
    return str(answer.content[0].text)


def structured() -> Any:
    parsed = client.messages.parse(
        model=ADAPTER, messages=[user(QUESTION)], max_tokens=64, output_format=Place
    ).parsed_output
    return parsed.model_dump()


report(
    answer=ask(user(QUESTION), system=[{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}])
    .content[0]
    .text,
    streamed=streamed(),
    tool=tool(),
    structured=structured(),
    second_turn=second_turn(),
    wrong_key=failure(
        lambda: Anthropic(base_url=SERVER, api_key=WRONG_KEY).messages.create(
            model=ADAPTER, messages=[user(QUESTION)], max_tokens=8
        )
    ),
    unknown_model=failure(lambda: ask(user(QUESTION), model=UNKNOWN_MODEL)),
    counted=client.messages.count_tokens(model=ADAPTER, messages=[user(QUESTION)]).input_tokens > 0,
)
