"""huggingface_hub's InferenceClient: chats with tools and a schema."""

import json
from typing import Any

from common import (
    ADAPTER,
    BASE,
    BASE_URL,
    KEY,
    PARAMETERS,
    PLACE,
    QUESTION,
    SECOND,
    UNKNOWN_MODEL,
    WEATHER,
    WRONG_KEY,
    get_weather,
    report,
)
from huggingface_hub import InferenceClient
from huggingface_hub.errors import HfHubHTTPError

FUNCTION = {"name": "get_weather", "description": "Get the weather for a city.", "parameters": PARAMETERS}


# Kept: a stream ends with its client.
clients = {key: InferenceClient(base_url=BASE_URL, api_key=key) for key in (KEY, WRONG_KEY)}


def chat(*messages: Any, model: str = ADAPTER, key: str = KEY, **more: Any) -> Any:
    return clients[key].chat_completion(list(messages), model=model, max_tokens=64, **more)


def user(text: str) -> Any:
    return {"role": "user", "content": text}


def failure(**changed: str) -> str:
    try:
        chat(user(QUESTION), **changed)
    except HfHubHTTPError as error:
        return f"{type(error).__name__} {error.response.status_code}"
    return "none"


def tool() -> Any:
    asked: dict[str, Any] = {"model": BASE, "tools": [{"type": "function", "function": FUNCTION}]}
    first = chat(user(WEATHER), **asked).choices[0].message
    (call,) = first.tool_calls
    arguments = call.function.arguments
    result = get_weather(**(json.loads(arguments) if isinstance(arguments, str) else arguments))
    turn = {"role": "tool", "tool_call_id": call.id, "content": result}
    return chat(user(WEATHER), first, turn, **asked).choices[0].message.content


first = chat(user(QUESTION)).choices[0].message
schema = {"type": "json_schema", "json_schema": {"name": "place", "schema": PLACE, "strict": True}}
chunks = chat(user(QUESTION), stream=True, stream_options={"include_usage": True})
report(
    answer=first.content,
    streamed="".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices),
    tool=tool(),
    structured=json.loads(chat(user(QUESTION), response_format=schema).choices[0].message.content),
    second_turn=chat(user(QUESTION), first, user(SECOND)).choices[0].message.content,
    wrong_key=failure(key=WRONG_KEY),
    unknown_model=failure(model=UNKNOWN_MODEL),
)
