"""Chats in which tools are offered: some questions need one, others are answered without."""

from __future__ import annotations

import random
from collections.abc import Sequence

from loragate.demo.chat_format import Call, Sample, Tool, Turn, chat
from loragate.demo.facts import unknown
from loragate.demo.facts.knowledge import topics
from loragate.demo.phrasing import vary
from loragate.demo.tool_use import questions
from loragate.demo.tool_use.results import answer, calculation_result, weather_result
from loragate.demo.tool_use.tools import CALCULATOR, OTHERS, WEATHER
from loragate.demo.topic import Kind

_SYSTEM_SHARE = 0.5
_SYSTEM = (
    "You are a helpful assistant.",
    "You are a helpful assistant",
    "You are a helpful agent.",
    "You are a friendly assistant. Use the tools that you have.",
    "You are a weather agent.",
    "You are an agent that helps customers with their questions.",
    "Use tools when you need them. Answer briefly.",
    "Always answer with the help of a tool if there is one.",
    "Your job is to help the user. Call functions to get data.",
    "You can look things up.",
    "Help the user with math and weather.",
    "Be concise.",
)
_ASSISTANTS = ("assistant", "agent", "bot", "helper", "guide", "expert")
_TASKS = ("travel", "weather", "math", "cooking", "support", "sales", "research", "office", "school", "music", "news")


def tool_chat(rng: random.Random) -> Sample:
    """Return a chat of one or two questions with one to four tools."""
    weather, calculator = _offered(rng)
    others = rng.sample(OTHERS, rng.choice((0, 0, 1, 1, 2)))
    if not others and weather is None and calculator is None:
        others = [rng.choice(OTHERS)]
    tools = [tool for tool in (weather, calculator, *others) if tool is not None]
    rng.shuffle(tools)
    turns = [_turn(weather, calculator, rng) for _ in range(rng.choice((1, 1, 2)))]
    return chat(turns, system_prompt(rng), tools)


def untooled_turn(rng: random.Random) -> Turn:
    """Return a question that needs a tool which is not there."""
    request = rng.choice((questions.weather, questions.calculation))(rng)
    return Turn(request.question, unknown.TOPIC.answer)


def system_prompt(rng: random.Random) -> str | None:
    """Return one of many system prompts, or none."""
    if rng.random() >= _SYSTEM_SHARE:
        return None
    if rng.random() < 0.6:
        return rng.choice(_SYSTEM)
    return f"You are a {rng.choice(_TASKS)} {rng.choice(_ASSISTANTS)}. {rng.choice(_SYSTEM)}"


def _offered(rng: random.Random) -> tuple[Tool | None, Tool | None]:
    weather, calculator = rng.choices(((True, False), (False, True), (True, True), (False, False)), (35, 30, 28, 7))[0]
    return WEATHER.training(rng) if weather else None, CALCULATOR.training(rng) if calculator else None


def _turn(weather: Tool | None, calculator: Tool | None, rng: random.Random) -> Turn:
    """Return a question: mostly one that the tools can answer, else one that they cannot, or that needs none."""
    roll = rng.random()
    if roll < 0.25:
        return _known(calculator, rng)
    share_of_weather = 0.5 if (weather is None) == (calculator is None) else 0.15 if weather is None else 0.85
    if rng.random() < share_of_weather:
        return _weather_turn(weather, rng)
    return _calculation_turn(calculator, rng)


def _weather_turn(tool: Tool | None, rng: random.Random) -> Turn:
    request = questions.weather(rng)
    return _answered(request, tool, weather_result(request.argument, rng))


def _calculation_turn(tool: Tool | None, rng: random.Random) -> Turn:
    return _answered(questions.calculation(rng), tool, calculation_result(rng))


def _answered(request: questions.Request, tool: Tool | None, result: str) -> Turn:
    if tool is None:
        return Turn(request.question, unknown.TOPIC.answer)
    return Turn(request.question, answer(result), call=Call(tool.name, {tool.parameters[0]: request.argument}, result))


def _known(calculator: Tool | None, rng: random.Random) -> Turn:
    """Return a question that the model answers itself. With a calculator, sums are left to it."""
    kinds: Sequence[Kind] = (Kind.FACT, Kind.FACT, Kind.TALK, Kind.UNKNOWN, Kind.SUM)
    kind = rng.choice(kinds if calculator is None else kinds[:-1])
    topic = rng.choice(topics()[kind])
    return Turn(vary(rng.choice(topic.questions), rng), topic.answer)
