"""Questions that need a tool, and the argument that each asks for."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from loragate.demo.facts import arithmetic
from loragate.demo.phrasing import vary
from loragate.demo.tool_use.arguments import HELD_OUT_CITIES, city, number
from loragate.demo.topic import capitalize_first

WEATHER = (
    "What is the weather in {x}?",
    "What's the weather in {x}?",
    "How is the weather in {x}?",
    "What is the weather like in {x}?",
    "What's the weather like in {x} today?",
    "What is the weather in {x} right now?",
    "What will the weather be in {x} tomorrow?",
    "Can you tell me the weather in {x}?",
    "Tell me the weather in {x}.",
    "Give me the weather for {x}.",
    "Check the weather in {x}.",
    "Get the weather for {x}",
    "Show me the forecast for {x}.",
    "Weather in {x}?",
    "{x} weather",
    "Is it raining in {x}?",
    "Is it sunny in {x} today?",
    "Will it rain in {x}?",
    "How warm is it in {x}?",
    "How cold is it in {x} today?",
    "What is the temperature in {x}?",
    "Do I need an umbrella in {x}?",
    "I am going to {x}. What is the weather there?",
    "I live in {x}. How is the weather?",
    "Please look up the weather of {x} now.",
)
HELD_OUT_WEATHER = (
    "Could you check the weather in {x}?",
    "What's the temperature in {x} right now?",
    "What is today's weather in {x}?",
    "Please tell me how the weather is in {x}.",
    "Is it cold in {x} today?",
    "I want to know the weather in {x}.",
    "How's the weather like in {x} now?",
)
CALCULATIONS = (
    "What is {x}?",
    "Calculate {x}.",
    "Compute {x}",
    "How much is {x}?",
    "{x} = ?",
    "{x}",
    "Please work out {x}.",
    "Use the calculator: {x}",
    "I need the result of {x}.",
    "Solve {x}.",
    "Tell me {x}.",
    "Evaluate {x} for me.",
    "Can you calculate {x}?",
    "What does {x} equal?",
    "What is the value of {x}?",
)
HELD_OUT_CALCULATIONS = (
    "Could you compute {x} for me?",
    "Do you know how much {x} is?",
    "What is the result of {x}?",
    "What's {x}?",
    "Please calculate {x}.",
    "Can you work out how much {x} is?",
)
_OPERATORS = {
    "+": ("+", "+", "plus"),
    "-": ("-", "-", "minus"),
    "*": ("*", "*", "times", "x", "multiplied by"),
    "/": ("/", "/", "divided by"),
}


@dataclass(frozen=True)
class Request:
    """A question and the tool's argument that it asks for."""

    question: str
    argument: str


def weather(rng: random.Random) -> Request:
    """Return a question to train on."""
    name = city(rng)
    question = vary(capitalize_first(rng.choice(WEATHER).format(x=name)), rng)
    start = question.lower().rindex(name.lower())  # sloppy typing changes its capitals
    return Request(question, question[start : start + len(name)])


def calculation(rng: random.Random) -> Request:
    """Return a question to train on."""
    return _calculation(CALCULATIONS, rng, vary)


def held_out_weather(rng: random.Random) -> Request:
    """Return a question with a wording and a city that training does not contain."""
    name = rng.choice(HELD_OUT_CITIES)
    return Request(rng.choice(HELD_OUT_WEATHER).format(x=name), name)


def held_out_calculation(rng: random.Random) -> Request:
    """Return a question with a wording that training does not contain."""
    return _calculation(HELD_OUT_CALCULATIONS, rng, lambda question, _: question)


def _calculation(wordings: Sequence[str], rng: random.Random, vary: Callable[[str, random.Random], str]) -> Request:
    spoken, written = _expression(rng)
    return Request(vary(rng.choice(wordings).format(x=spoken), rng), written)


def _expression(rng: random.Random) -> tuple[str, str]:
    """Return a calculation as users write it and as the calculator reads it. It is none of the sums that the model
    knows."""
    first, operator, second = number(rng), rng.choice(tuple(_OPERATORS)), number(rng)
    if operator == "+" and _is_known(first) and _is_known(second):
        second += "0"
    return f"{first} {rng.choice(_OPERATORS[operator])} {second}", f"{first} {operator} {second}"


def _is_known(operand: str) -> bool:
    return operand.isdecimal() and int(operand) <= arithmetic.LARGEST
