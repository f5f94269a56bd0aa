"""Sends requests through langchain-openai, and prints the results as JSON. Arguments: base URL, key, model."""

import json
import sys
from typing import Any

from langchain_openai import ChatOpenAI, OpenAIEmbeddings

PLACE = {"title": "place", "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": PLACE}}


def main(base_url: str, key: str, model: str) -> dict[str, Any]:
    options: dict[str, Any] = {"base_url": base_url, "api_key": key, "max_retries": 0}
    chat = ChatOpenAI(model=model, **options)
    answer = chat.invoke([("system", "Be brief."), ("user", "Hello")])
    chunks = list(chat.stream("Hello", stream_usage=True))
    called = chat.bind_tools([WEATHER]).invoke("What is the weather?")
    place = chat.with_structured_output(PLACE, method="json_schema").invoke("Where is it?")
    vectors = OpenAIEmbeddings(model=model, check_embedding_ctx_length=False, **options).embed_documents(["a", "b"])
    try:
        ChatOpenAI(model="nobodys", **options).invoke("Hello")
    except Exception as error:
        rejected = type(error).__name__
    return {
        "answer": answer.content,
        "usage": answer.usage_metadata["total_tokens"],
        "streamed": "".join(str(chunk.content) for chunk in chunks),
        "streamed_usage": sum(chunk.usage_metadata["total_tokens"] for chunk in chunks if chunk.usage_metadata),
        "called": [(call["name"], call["args"]) for call in called.tool_calls],
        "place": place,
        "vectors": vectors,
        "rejected": rejected,
    }


print(json.dumps(main(*sys.argv[1:])))
