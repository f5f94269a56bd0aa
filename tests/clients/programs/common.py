"""What all programs ask the demo, and how they report: one JSON object on the last line."""

import json
import os
from collections.abc import Callable
from typing import Any

SERVER, KEY = os.environ["LORAGATE_BASE_URL"], os.environ["LORAGATE_API_KEY"]
BASE_URL = f"{SERVER}/v1"
WRONG_KEY, UNKNOWN_MODEL = "lg-invalid", "unknownModel"
ADAPTER, BASE = "pirate", "loragate-demo"
QUESTION, SECOND = "What is the capital of France?", "What is the capital of Italy?"
WEATHER = "What is the weather in Helsinki?"
CITIES = ["Rome", "Oslo", "Paris"]
PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
PLACE = {**PARAMETERS, "properties": {"city": {"type": "string", "enum": CITIES}}}


def get_weather(city: str) -> str:
    """Get the weather for a city."""
    return "sunny, 21 °C" if city == "Helsinki" else "unknown"


def failure(call: Callable[[], Any]) -> str:
    """Return the class of the error that a call raises."""
    try:
        call()
    except Exception as error:
        return type(error).__name__
    return "none"


def report(**outcomes: Any) -> None:
    print(json.dumps(outcomes))
