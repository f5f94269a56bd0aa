"""A part without which the server serves all the same."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from loragate.cli.supervisor.program import Program


@dataclass(frozen=True)
class OptionalPart:
    """`name` as the runtime file and `/readyz` have it; `is_up` tells whether the process with this id works."""

    name: str
    program: Program
    is_up: Callable[[int], Awaitable[bool]]
