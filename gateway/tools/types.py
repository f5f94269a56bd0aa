"""What is read from a model's text, piece by piece."""

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar


@dataclass(frozen=True, slots=True)
class Content:
    """Text for the reader."""

    text: str


@dataclass(frozen=True, slots=True)
class CallStart:
    """A call of a tool that the request defined begins."""

    name: str


@dataclass(frozen=True, slots=True)
class Arguments:
    """More of the arguments of the last call that began, as JSON text."""

    text: str


Event: TypeAlias = Content | CallStart | Arguments

T = TypeVar("T")

# A step of reading yields what it found, or None when it needs more text, and returns what it read.
Steps: TypeAlias = Generator[Event | None, None, T]


class Malformed(Exception):
    """The text is not what the format says. What was read and not committed becomes content."""


Schema: TypeAlias = Mapping[str, Any]

# Name → the JSON Schema of its arguments, which is an object's.
Tools: TypeAlias = Mapping[str, Schema]
