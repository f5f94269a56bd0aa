"""The events that a format's parser yields, and the types of tools."""

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar


@dataclass(frozen=True, slots=True)
class Content:
    """Text of the message."""

    text: str


@dataclass(frozen=True, slots=True)
class CallStart:
    """The start of a call of one of the request's tools."""

    name: str


@dataclass(frozen=True, slots=True)
class Arguments:
    """More of the arguments of the current call, as JSON text."""

    text: str


Event: TypeAlias = Content | CallStart | Arguments

T = TypeVar("T")

# A parsing step yields events, or None when it needs more text, and returns what it read.
Steps: TypeAlias = Generator[Event | None, None, T]


class Malformed(Exception):
    """The text does not follow the format. What was read but not committed becomes content."""


Schema: TypeAlias = Mapping[str, Any]

# The name of each tool → the JSON Schema of its arguments, which are an object.
Tools: TypeAlias = Mapping[str, Schema]
