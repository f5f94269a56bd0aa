"""Validates the lines of a training file before training starts, up to the first problems."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

from loragate.finetune.data.errors import InvalidLine, Problem
from loragate.finetune.data.examples import Example, LabelledChat, LabelledText
from loragate.finetune.data.formats import Format, Method, detect, parse_example
from loragate.finetune.data.jsonl import Line, parse_document, read_lines
from loragate.finetune.data.labels import LabelCensus, LabelFacts

MIN_EXAMPLES = 10
MAX_PROBLEMS = 20  # validation stops there
_STRIDE = 1 << 20  # bytes between two progress reports

OnProgress = Callable[[int], None]


@dataclass(frozen=True)
class ValidationReport:
    """The result of a validation. `format` is None for a file without a valid line; `stopped`: there are lines after
    the last of `MAX_PROBLEMS` problems, which were not read. `labels`: those of a format that has labels."""

    format: Format | None
    examples: int
    problems: tuple[Problem, ...] = ()
    stopped: bool = False
    labels: LabelFacts | None = None

    @property
    def problems_by_line(self) -> list[str]:
        """The problems, and whether there may be more."""
        return [*map(str, self.problems), *(["later lines were not checked"] if self.stopped else [])]

    @property
    def problems_text(self) -> str:
        """The same as one line of text."""
        return "; ".join(self.problems_by_line)

    def rejection(self, method: Method, min_examples: int = MIN_EXAMPLES) -> str | None:
        """Return why the file cannot be trained on, or None if it can. A file of fewer examples than training needs
        may have only one class."""
        if self.problems:
            return self.problems_text
        if self.examples < min_examples:
            return f"The file has {self.examples} examples; at least {min_examples} are required."
        assert self.format is not None
        if self.format.method is not method:
            return f"The file's format is {self.format}, for the method '{self.format.method}', not '{method}'."
        return None if self.labels is None or min_examples < MIN_EXAMPLES else self.labels.rejection()


class Validator:
    """Validates one file and collects its problems. `on_progress` is called now and then with the number of bytes read.

    `format` is that of earlier lines, if there are any.
    """

    def __init__(self, on_progress: OnProgress = lambda _: None, format: Format | None = None) -> None:
        self._on_progress = on_progress
        self._format = format
        self._lines = 0
        self._examples = 0
        self._problems: list[Problem] = []
        self._stopped = False
        self.labels = LabelCensus()

    @property
    def has_problems(self) -> bool:
        """Whether a line so far is invalid."""
        return bool(self._problems)

    @property
    def report(self) -> ValidationReport:
        """The report of the lines so far."""
        return ValidationReport(self._format, self._examples, self._in_order, self._stopped, self.labels.facts)

    def examples(self, file: BinaryIO) -> Iterator[tuple[Line, Example]]:
        """Yield the valid examples up to the file's end, or to its `MAX_PROBLEMS`th problem. Another call continues
        with the lines that follow."""
        reported = 0
        for line in read_lines(file, self._lines):
            if len(self._problems) >= MAX_PROBLEMS:
                self._stopped = True
                return
            self._lines = line.number
            try:
                example = self._example(line)
            except InvalidLine as error:
                self.reject(line.number, error)
            else:
                self._examples += 1
                yield line, example
            if line.end >= reported + _STRIDE:
                self._on_progress(reported := line.end)

    def reject(self, line: int, error: InvalidLine) -> None:
        """Record a problem of a line, which may precede others with problems, unless there are `MAX_PROBLEMS`."""
        if len(self._problems) < MAX_PROBLEMS:
            self._problems.append(error.at(line))
        else:
            self._stopped = True

    @property
    def _in_order(self) -> tuple[Problem, ...]:
        return tuple(sorted(self._problems, key=lambda problem: problem.line))

    def _example(self, line: Line) -> Example:
        document = parse_document(line)
        self._format = self._format or detect(document)
        example = parse_example(document, self._format)
        if isinstance(example, LabelledText | LabelledChat):
            self.labels.add(example.label, line.number)
        return example


def validate(file: BinaryIO, on_progress: OnProgress = lambda _: None) -> ValidationReport:
    """Validate a file as far as that is possible without the base model."""
    validator = Validator(on_progress)
    for _ in validator.examples(file):
        pass
    return validator.report
