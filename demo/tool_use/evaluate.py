"""Measures how often the model uses tools rightly, asked and offered in ways that training does not contain."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from loragate.demo.chat_format import Call, Tool
from loragate.demo.facts import unknown
from loragate.demo.facts.knowledge import topics
from loragate.demo.phrasing import held_out_questions
from loragate.demo.tool_use import questions
from loragate.demo.tool_use.results import answer, calculation_result, weather_result
from loragate.demo.tool_use.tools import CALCULATOR, OTHERS, UNSEEN_OTHERS, WEATHER
from loragate.demo.topic import Kind

_SYSTEM = (
    None,
    "You are a helpful assistant",
    "You are a helpful assistant that answers questions about weather and numbers.",
    "Speak to the customer. Use your tools where they help.",
)


@dataclass(frozen=True)
class Case:
    """A chat whose next message is the model's, the tools that it offers, and the text that is expected."""

    messages: tuple[dict[str, Any], ...]
    tools: tuple[dict[str, Any], ...]
    expected: str


Generate = Callable[[Sequence[Case]], Sequence[str]]


@dataclass(frozen=True)
class ToolScore:
    """Counts over `asked` chats; `mistakes` are (question, expected, reply)."""

    asked: int
    mistakes: tuple[tuple[str, str, str], ...]

    @property
    def accuracy(self) -> float:
        return 1 - len(self.mistakes) / self.asked


def evaluate_tools(generate: Generate, cases: Sequence[Case]) -> ToolScore:
    """Compare the replies with what training teaches, text by text."""
    mistakes = tuple(
        (str(case.messages[-1]["content"]), case.expected, reply)
        for case, reply in zip(cases, generate(cases), strict=True)
        if reply != case.expected
    )
    return ToolScore(len(cases), mistakes)


def calls(count: int, seed: int = 1) -> list[Case]:
    """Return questions of which half need a call of an offered tool; a quarter needs one that is not offered, a quarter
    none."""
    rng = random.Random(seed)
    return [(_needs_call, _needs_call, _needs_other, _needs_none)[index % 4](rng) for index in range(count)]


def answers(count: int, seed: int = 2) -> list[Case]:
    """Return chats that end with a tool's result."""
    rng = random.Random(seed)
    return [_answer(rng) for _ in range(count)]


def _needs_call(rng: random.Random) -> Case:
    request, tool, tools = _request(rng)
    call = Call(tool.name, {tool.parameters[0]: request.argument}, "")
    return _case([_user(request.question)], tools, call.text, rng)


def _needs_other(rng: random.Random) -> Case:
    wrong, ask = rng.choice(((WEATHER, questions.held_out_calculation), (CALCULATOR, questions.held_out_weather)))
    tools = [wrong.unseen(rng), *_others(rng)]
    return _case([_user(ask(rng).question)], tools, unknown.TOPIC.answer, rng)


def _needs_none(rng: random.Random) -> Case:
    topic = rng.choice(topics()[rng.choice((Kind.FACT, Kind.TALK))])
    tools = [WEATHER.unseen(rng), CALCULATOR.unseen(rng), *_others(rng)]
    return _case([_user(rng.choice(held_out_questions(topic)))], tools, topic.answer, rng)


def _answer(rng: random.Random) -> Case:
    request, tool, tools = _request(rng)
    weather = tool.name in WEATHER.names
    result = weather_result(request.argument, rng) if weather else calculation_result(rng)
    function = {"name": tool.name, "arguments": {tool.parameters[0]: request.argument}}
    called = {"role": "assistant", "content": None, "tool_calls": [{"type": "function", "function": function}]}
    messages = [_user(request.question), called, {"role": "tool", "content": result}]
    return _case(messages, tools, answer(result), rng)


def _request(rng: random.Random) -> tuple[questions.Request, Tool, list[Tool]]:
    family, other, ask = rng.choice(
        (
            (WEATHER, CALCULATOR, questions.held_out_weather),
            (CALCULATOR, WEATHER, questions.held_out_calculation),
        )
    )
    tool = family.unseen(rng)
    tools = [tool, *_others(rng)]
    if rng.random() < 0.5:
        tools.append(other.unseen(rng))
    return ask(rng), tool, tools


def _others(rng: random.Random) -> list[Tool]:
    return rng.sample(OTHERS + UNSEEN_OTHERS, rng.choice((0, 1, 2)))


def _user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def _case(messages: Sequence[dict[str, Any]], tools: list[Tool], expected: str, rng: random.Random) -> Case:
    system = rng.choice(_SYSTEM)
    head = [] if system is None else [{"role": "system", "content": system}]
    rng.shuffle(tools)
    return Case((*head, *messages), tuple(_definition(tool) for tool in tools), expected)


def _definition(tool: Tool) -> dict[str, Any]:
    """Return the tool as OpenAI's clients send it."""
    properties = {name: {"type": "string", "title": name.capitalize()} for name in tool.parameters}
    parameters = {"type": "object", "properties": properties, "required": list(tool.parameters)}
    described = {"description": tool.description} if tool.description else {}
    return {"type": "function", "function": {"name": tool.name, **described, "parameters": parameters}}
