"""What is wrong with a training file."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """`line` counts from 1; `param` is a path such as `messages.0.role`, None for the whole line."""

    line: int
    words: str
    param: str | None = None

    def __str__(self) -> str:
        return f"Line {self.line}: {self.words}"


class InvalidLine(ValueError):
    """A line cannot be an example. Its words do not quote what the line says."""

    def __init__(self, words: str, param: str | None = None) -> None:
        super().__init__(words)
        self.words = words
        self.param = param

    def at(self, line: int) -> Problem:
        """The same, with its place."""
        return Problem(line, self.words, self.param)
