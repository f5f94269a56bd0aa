"""LangChain: ChatOpenAI over chats and over Responses, ChatAnthropic, an agent, embeddings."""

from typing import Any, Literal

from common import (
    ADAPTER,
    BASE,
    BASE_URL,
    KEY,
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
from langchain.agents import create_agent
from langchain_anthropic import ChatAnthropic
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from pydantic import BaseModel


class Place(BaseModel):
    """A place."""

    city: Literal["Rome", "Oslo", "Paris"]


def openai(model: str = ADAPTER, key: str = KEY, **more: Any) -> Any:
    return ChatOpenAI(model=model, base_url=BASE_URL, api_key=key, max_retries=0, **more)


def anthropic(model: str = ADAPTER, key: str = KEY, **more: Any) -> Any:
    return ChatAnthropic(model=model, base_url=SERVER, api_key=key, max_retries=0, max_tokens=64, **more)


def text(message: Any) -> str:
    return str(message.text)


def outcomes(chat: Any, **more: Any) -> dict[str, Any]:
    first = chat(**more).invoke([("system", "Be brief."), ("user", QUESTION)])
    agent = create_agent(chat(BASE, **more), tools=[get_weather], system_prompt="You are a helpful assistant.")
    turns = [("user", QUESTION), first, ("user", SECOND)]
    return {
        "answer": text(first),
        "streamed": "".join(text(chunk) for chunk in chat(**more).stream(QUESTION)),
        "tool": text(agent.invoke({"messages": [("user", WEATHER)]})["messages"][-1]),
        "structured": chat(**more).with_structured_output(Place).invoke(QUESTION).model_dump(),
        "second_turn": text(chat(**more).invoke(turns)),
        "wrong_key": failure(lambda: chat(key=WRONG_KEY, **more).invoke(QUESTION)),
        "unknown_model": failure(lambda: chat(UNKNOWN_MODEL, **more).invoke(QUESTION)),
    }


embeddings = OpenAIEmbeddings(model=BASE, base_url=BASE_URL, api_key=KEY, check_embedding_ctx_length=False)
report(
    **outcomes(openai),
    responses=outcomes(openai, use_responses_api=True),
    messages=outcomes(anthropic),
    embeddings=len(embeddings.embed_documents(["a", "b"])),
)
