"""A look at every line of a training file before anything is trained."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

from loragate.finetune.data.errors import InvalidLine, Problem
from loragate.finetune.data.examples import Example
from loragate.finetune.data.formats import Format, Method, detect, parse_example
from loragate.finetune.data.jsonl import Line, parse_document, read_lines

MIN_EXAMPLES = 10
_NAMED_PROBLEMS = 20
_STRIDE = 1 << 20  # bytes between two reports

Told = Callable[[int], None]


@dataclass(frozen=True)
class ValidationReport:
    """`problems` are the first 20 of `problem_count`. `format` is None for a file without a single good line."""

    format: Format | None
    examples: int
    problems: tuple[Problem, ...] = ()
    problem_count: int = 0

    @property
    def problems_by_line(self) -> list[str]:
        """All that are known, and how many are not."""
        more = self.problem_count - len(self.problems)
        return [*map(str, self.problems), *([f"and {more} more"] if more else [])]

    @property
    def problems_text(self) -> str:
        """The same in one line."""
        return "; ".join(self.problems_by_line)

    def rejection(self, method: Method, fewest: int = MIN_EXAMPLES) -> str | None:
        """Why it cannot be trained on, in words; None if it can."""
        if self.problem_count:
            return self.problems_text
        if self.examples < fewest:
            return f"The file has {self.examples} examples; at least {fewest} are needed."
        assert self.format is not None
        if self.format.method is not method:
            return f"The file's format is {self.format}, for the method '{self.format.method}', not '{method}'."
        return None


class Validator:
    """Goes through one file, and keeps what is wrong with it. `told` hears now and then how many bytes are done.

    `format` is that of the lines before the first, where there are any.
    """

    def __init__(self, told: Told = lambda _: None, format: Format | None = None) -> None:
        self._told = told
        self._format = format
        self._lines = 0
        self._examples = 0
        self._problems: list[Problem] = []
        self.problem_count = 0

    @property
    def report(self) -> ValidationReport:
        """So far."""
        return ValidationReport(self._format, self._examples, tuple(self._problems), self.problem_count)

    def examples(self, file: BinaryIO) -> Iterator[tuple[Line, Example]]:
        """The good ones, to the file's end. Called again, it goes on with lines behind these."""
        told = 0
        for line in read_lines(file, self._lines):
            self._lines = line.number
            try:
                example = self._example(line)
            except InvalidLine as refused:
                self.refuse(line, refused)
            else:
                self._examples += 1
                yield line, example
            if line.end >= told + _STRIDE:
                self._told(told := line.end)

    def refuse(self, line: Line, refused: InvalidLine) -> None:
        """Something is wrong with a line."""
        self.problem_count += 1
        if len(self._problems) < _NAMED_PROBLEMS:
            self._problems.append(refused.at(line.number))

    def _example(self, line: Line) -> Example:
        document = parse_document(line)
        self._format = self._format or detect(document)
        return parse_example(document, self._format)


def validate(file: BinaryIO, told: Told = lambda _: None) -> ValidationReport:
    """As far as it can be told without the base model."""
    validator = Validator(told)
    for _ in validator.examples(file):
        pass
    return validator.report
