"""Sends requests through litellm, and prints the results as JSON. Arguments: base URL, key, model."""

import json
import os
import sys
from typing import Any

sys.path.pop(0)  # this folder, where this file has the package's name
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # it would download prices
import litellm

PLACE = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": PLACE}}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "place", "schema": PLACE}}


def main(base_url: str, key: str, model: str) -> dict[str, Any]:
    options: dict[str, Any] = {"api_base": base_url, "api_key": key, "num_retries": 0}

    def ask(text: str, model: str = model, **more: Any) -> Any:
        messages = [{"role": "user", "content": text}]
        return litellm.completion(f"openai/{model}", messages=messages, **options, **more)

    answer = ask("Hello")
    chunks = list(ask("Hello", stream=True, stream_options={"include_usage": True}))
    called = ask("What is the weather?", tools=[WEATHER]).choices[0].message.tool_calls
    place = ask("Where is it?", response_format=SCHEMA).choices[0].message.content
    embedded = litellm.embedding(f"openai/{model}", input=["a", "b"], encoding_format="float", **options)
    try:
        ask("Hello", model="nobodys")
    except Exception as error:
        rejected = type(error).__name__
    return {
        "answer": answer.choices[0].message.content,
        "usage": answer.usage.total_tokens,
        "streamed": "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices),
        "streamed_usage": sum(chunk.usage.total_tokens for chunk in chunks if getattr(chunk, "usage", None)),
        "called": [(call.function.name, json.loads(call.function.arguments)) for call in called],
        "place": json.loads(place),
        "vectors": [each["embedding"] for each in embedded.data],
        "rejected": rejected,
    }


print(json.dumps(main(*sys.argv[1:])))
