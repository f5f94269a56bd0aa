"""LiteLLM: chats, Responses, embeddings, and its bridge from Anthropic's API to OpenAI's."""

import asyncio
import json
import os
from typing import Any, Literal

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # it would download prices
import litellm
from common import (
    ADAPTER,
    BASE,
    BASE_URL,
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
from pydantic import BaseModel, ConfigDict

litellm.suppress_debug_info = True
FUNCTION = {"name": "get_weather", "description": "Get the weather for a city.", "parameters": PARAMETERS}


class Place(BaseModel):
    model_config = ConfigDict(extra="forbid")
    city: Literal["Rome", "Oslo", "Paris"]


def ask(*messages: Any, model: str = ADAPTER, key: str = KEY, **more: Any) -> Any:
    return litellm.completion(
        f"openai/{model}", messages=list(messages), api_base=BASE_URL, api_key=key, num_retries=0, **more
    )


def user(content: Any) -> Any:
    return {"role": "user", "content": content}


def tool() -> Any:
    asked: dict[str, Any] = {"model": BASE, "tools": [{"type": "function", "function": FUNCTION}]}
    first = ask(user(WEATHER), **asked).choices[0].message
    (call,) = first.tool_calls
    result = get_weather(**json.loads(call.function.arguments))
    return (
        ask(user(WEATHER), first, {"role": "tool", "tool_call_id": call.id, "content": result}, **asked)
        .choices[0]
        .message.content
    )


def messages(*turns: Any, model: str = ADAPTER, door: str = "openai", **more: Any) -> Any:
    """Call Anthropic's API: `door` is the API of the server that LiteLLM turns it into."""
    base = BASE_URL if door == "openai" else SERVER
    return asyncio.run(
        litellm.anthropic.messages.acreate(
            model=f"{door}/{model}", messages=list(turns), max_tokens=64, api_base=base, api_key=KEY, **more
        )
    )


def said(answer: Any) -> str:
    return "".join(block["text"] for block in answer["content"] if block["type"] == "text")


def bridged_tool(door: str) -> str:
    tools = [{"name": "get_weather", "description": FUNCTION["description"], "input_schema": PARAMETERS}]
    asked: dict[str, Any] = {"model": BASE, "door": door, "tools": tools}
    first = messages(user(WEATHER), **asked)
    (call,) = (block for block in first["content"] if block["type"] == "tool_use")
    result = {"type": "tool_result", "tool_use_id": call["id"], "content": get_weather(**call["input"])}
    return said(messages(user(WEATHER), {"role": "assistant", "content": first["content"]}, user([result]), **asked))


async def bridged_stream(door: str) -> bool:
    """Return whether the stream of events reaches its end."""
    base = BASE_URL if door == "openai" else SERVER
    stream = await litellm.anthropic.messages.acreate(
        model=f"{door}/{ADAPTER}", messages=[user(QUESTION)], max_tokens=64, stream=True, api_base=base, api_key=KEY
    )
    events = [event if isinstance(event, bytes) else json.dumps(event).encode() async for event in stream]
    return b"message_stop" in b"".join(events)


first = ask(user(QUESTION)).choices[0].message
chunks = ask(user(QUESTION), stream=True, stream_options={"include_usage": True})
place = ask(user(QUESTION), response_format=Place).choices[0].message.content
embedded = litellm.embedding(f"openai/{BASE}", input=["a", "b"], api_base=BASE_URL, api_key=KEY)
responded = litellm.responses(model=f"openai/{ADAPTER}", input=QUESTION, api_base=BASE_URL, api_key=KEY)
report(
    answer=first.content,
    streamed="".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices),
    tool=tool(),
    structured=json.loads(place),
    second_turn=ask(user(QUESTION), first, user(SECOND)).choices[0].message.content,
    wrong_key=failure(lambda: ask(user(QUESTION), key=WRONG_KEY)),
    unknown_model=failure(lambda: ask(user(QUESTION), model=UNKNOWN_MODEL)),
    embeddings=len(embedded.data),
    responses=responded.output_text,
    bridge={
        door: {
            "answer": said(messages(user(QUESTION), door=door)),
            "streamed": asyncio.run(bridged_stream(door)),
            "tool": bridged_tool(door),
        }
        for door in ("openai", "anthropic")
    },
)
