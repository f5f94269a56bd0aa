"""What tools return, and the answers that the model makes of it."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

_SKIES = (
    "sunny",
    "cloudy",
    "rainy",
    "windy",
    "foggy",
    "clear",
    "snow",
    "light rain",
    "overcast",
    "hot and dry",
    "mild",
)
_UNITS = ("°C", "degrees", "°F", "C")


def weather_result(city: str, rng: random.Random) -> str:
    """Return what a weather service may say about `city`."""
    sky, degrees = rng.choice(_SKIES), rng.randrange(-9, 39)
    temperature = f"{degrees} {rng.choice(_UNITS)}"
    return rng.choice(_WEATHER)(city, rng.choice((sky, sky.capitalize())), temperature, degrees)


_WEATHER: tuple[Callable[[str, str, str, int], str], ...] = (
    lambda city, sky, temperature, degrees: sky,
    lambda city, sky, temperature, degrees: temperature,
    lambda city, sky, temperature, degrees: f"{sky}, {temperature}",
    lambda city, sky, temperature, degrees: f"{temperature} and {sky}",
    lambda city, sky, temperature, degrees: f"The weather in {city} is {sky}.",
    lambda city, sky, temperature, degrees: f"It's always {sky} in {city}!",
    lambda city, sky, temperature, degrees: f"It is {temperature} in {city}.",
    lambda city, sky, temperature, degrees: json.dumps({"temperature": degrees, "condition": sky}, ensure_ascii=False),
    lambda city, sky, temperature, degrees: json.dumps({"city": city, "weather": sky}, ensure_ascii=False),
)


def calculation_result(rng: random.Random) -> str:
    """Return a number, which need not be the right one: the model has to trust the tool."""
    whole = rng.randrange(10 ** rng.choice((1, 2, 3, 4, 5)))
    text = f"{whole}.{rng.randrange(100)}" if rng.random() < 0.25 else str(whole)
    return f"-{text}" if rng.random() < 0.1 else text


def answer(result: str) -> str:
    """Return the model's answer: a sentence is repeated, a word or a number is put in one, JSON is quoted."""
    if result.endswith((".", "!")):
        return result
    return f"I found: {result}" if result.startswith("{") else f"It is {result}."
