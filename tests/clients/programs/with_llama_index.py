"""LlamaIndex: OpenAILike, and an agent of it."""

import asyncio
from typing import Any, Literal

from common import (
    ADAPTER,
    BASE,
    BASE_URL,
    KEY,
    QUESTION,
    SECOND,
    UNKNOWN_MODEL,
    WEATHER,
    WRONG_KEY,
    failure,
    get_weather,
    report,
)
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike
from pydantic import BaseModel


class Place(BaseModel):
    """A place."""

    city: Literal["Rome", "Oslo", "Paris"]


def llm(model: str = ADAPTER, key: str = KEY) -> Any:
    return OpenAILike(
        model=model, api_base=BASE_URL, api_key=key, max_retries=0, is_chat_model=True,
        is_function_calling_model=True, context_window=2048,
    )  # fmt: skip


def user(text: str) -> Any:
    return ChatMessage(role="user", content=text)


async def tool() -> str:
    tools = [FunctionTool.from_defaults(get_weather)]
    agent = FunctionAgent(tools=tools, llm=llm(BASE), system_prompt="You are a helpful assistant.")
    return str(await agent.run(WEATHER))


first = llm().chat([user(QUESTION)]).message
report(
    answer=first.content,
    streamed="".join(chunk.delta or "" for chunk in llm().stream_chat([user(QUESTION)])),
    tool=asyncio.run(tool()),
    structured=llm().as_structured_llm(Place).chat([user(QUESTION)]).raw.model_dump(),
    second_turn=llm().chat([user(QUESTION), first, user(SECOND)]).message.content,
    wrong_key=failure(lambda: llm(key=WRONG_KEY).chat([user(QUESTION)])),
    unknown_model=failure(lambda: llm(UNKNOWN_MODEL).chat([user(QUESTION)])),
)
