"""openai-agents: an agent with a tool, its stream, its output type; over Responses and over chats."""

import asyncio
from typing import Any, Literal

from agents import Agent, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, function_tool, set_tracing_disabled
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
    get_weather,
    report,
)
from openai import AsyncOpenAI
from pydantic import BaseModel

set_tracing_disabled(True)


class Place(BaseModel):
    city: Literal["Rome", "Oslo", "Paris"]


def agent(model: str = ADAPTER, kind: Any = OpenAIResponsesModel, key: str = KEY, **more: Any) -> Any:
    client = AsyncOpenAI(base_url=BASE_URL, api_key=key, max_retries=0)
    return Agent(name="Assistant", instructions="Be brief.", model=kind(model, client), **more)


async def streamed(asked: Any) -> str:
    result = Runner.run_streamed(asked, QUESTION)
    kinds = ("response.output_text.delta",)
    return "".join(
        [
            event.data.delta
            async for event in result.stream_events()
            if event.type == "raw_response_event" and event.data.type in kinds
        ]
    )


async def second_turn(asked: Any) -> Any:
    first = await Runner.run(asked, QUESTION)
    return (await Runner.run(asked, [*first.to_input_list(), {"role": "user", "content": SECOND}])).final_output


async def failure(asked: Any) -> str:
    try:
        await Runner.run(asked, QUESTION)
    except Exception as error:
        return type(error).__name__
    return "none"


async def outcomes(kind: Any) -> dict[str, Any]:
    tools = [function_tool(get_weather)]
    return {
        "answer": (await Runner.run(agent(kind=kind), QUESTION)).final_output,
        "streamed": await streamed(agent(kind=kind)),
        "tool": (await Runner.run(agent(BASE, kind, tools=tools), WEATHER)).final_output,
        "structured": (await Runner.run(agent(kind=kind, output_type=Place), QUESTION)).final_output.model_dump(),
        "second_turn": await second_turn(agent(kind=kind)),
        "wrong_key": await failure(agent(kind=kind, key=WRONG_KEY)),
        "unknown_model": await failure(agent(UNKNOWN_MODEL, kind)),
    }


async def main() -> None:
    report(**await outcomes(OpenAIResponsesModel), chats=await outcomes(OpenAIChatCompletionsModel))


asyncio.run(main())
