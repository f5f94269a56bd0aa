"""OpenAI's client: chats, their helpers for streams and for parsing, Responses, completions, embeddings, models."""

import json
from typing import Any, Literal

from common import (
    ADAPTER,
    BASE,
    BASE_URL,
    KEY,
    PARAMETERS,
    QUESTION,
    SECOND,
    UNKNOWN_MODEL,
    WEATHER,
    WRONG_KEY,
    failure,
    get_weather,
    report,
)
from openai import OpenAI, pydantic_function_tool
from pydantic import BaseModel

client = OpenAI(base_url=BASE_URL, api_key=KEY, max_retries=0)


class Place(BaseModel):
    city: Literal["Rome", "Oslo", "Paris"]


class GetWeather(BaseModel):
    """Get the weather for a city."""

    city: str


def ask(*messages: Any, model: str = ADAPTER, **more: Any) -> Any:
    return client.chat.completions.create(model=model, messages=list(messages), **more).choices[0].message


def user(text: str) -> Any:
    return {"role": "user", "content": text}


def streamed() -> str:
    with client.chat.completions.stream(
        model=ADAPTER, messages=[user(QUESTION)], stream_options={"include_usage": True}
    ) as stream:
        return "".join(event.delta for event in stream if event.type == "content.delta")


def tool() -> Any:
    """Send the helper's own answer back, with its `parsed_arguments`."""
    tools = [pydantic_function_tool(GetWeather, name="get_weather")]
    asked = {"model": BASE, "tools": tools}
    first = client.chat.completions.parse(messages=[user(WEATHER)], **asked).choices[0].message
    (call,) = first.tool_calls
    result = {"role": "tool", "tool_call_id": call.id, "content": get_weather(call.function.parsed_arguments.city)}
    return client.chat.completions.parse(messages=[user(WEATHER), first, result], **asked).choices[0].message.content


def second_turn() -> Any:
    return ask(user(QUESTION), ask(user(QUESTION)), user(SECOND)).content


def structured() -> Any:
    parsed = client.chat.completions.parse(model=ADAPTER, messages=[user(QUESTION)], response_format=Place)
    ask(user(QUESTION), parsed.choices[0].message, user(SECOND))  # with its `parsed`
    return parsed.choices[0].message.parsed.model_dump()


def responses_tool() -> Any:
    tools = [{"type": "function", "name": "get_weather", "parameters": PARAMETERS, "strict": True}]
    items: list[Any] = [user(WEATHER)]
    asked: dict[str, Any] = {"model": BASE, "tools": tools, "store": False}
    first = client.responses.create(input=items, include=["reasoning.encrypted_content"], **asked)
    (call,) = (item for item in first.output if item.type == "function_call")
    result = get_weather(**json.loads(call.arguments))
    items += [*first.output, {"type": "function_call_output", "call_id": call.call_id, "output": result}]
    return client.responses.create(input=items, **asked).output_text


def responses_streamed() -> str:
    with client.responses.stream(model=ADAPTER, input=QUESTION) as stream:
        text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        assert stream.get_final_response().output_text == text
    return text


report(
    answer=ask(user(QUESTION)).content,
    streamed=streamed(),
    tool=tool(),
    structured=structured(),
    second_turn=second_turn(),
    wrong_key=failure(lambda: OpenAI(base_url=BASE_URL, api_key=WRONG_KEY).models.list()),
    unknown_model=failure(lambda: ask(user(QUESTION), model=UNKNOWN_MODEL)),
    responses=client.responses.create(model=ADAPTER, input=QUESTION, instructions="Be brief.").output_text,
    responses_streamed=responses_streamed(),
    responses_tool=responses_tool(),
    responses_structured=client.responses.parse(model=ADAPTER, input=QUESTION, text_format=Place).output_parsed.city,
    completion=client.completions.create(model=BASE, prompt="The", max_tokens=4).object,
    models=sorted(model.id for model in client.models.list()),
    embeddings=len(client.embeddings.create(model=BASE, input=["a", "b"]).data),
    previous_response=failure(lambda: client.responses.create(model=BASE, input="a", previous_response_id="resp_1")),
)
