"""Errors in a training file."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """One error in a file. `line` counts from 1; `param` is a path such as `messages.0.role`, or None for the whole
    line."""

    line: int
    message: str
    param: str | None = None

    def __str__(self) -> str:
        return f"Line {self.line}: {self.message}"


class InvalidLine(ValueError):
    """A line cannot be used as an example. The message never quotes the line."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param

    def at(self, line: int) -> Problem:
        """Return this error as a problem of line `line`."""
        return Problem(line, self.message, self.param)
