"""The labels of a training file: what kind they are, which there are, and what a head is trained to compute of them.

Strings and integers are classes, of which each example has one; lists of strings are labels that apply independently;
numbers, of which at least one has a fraction or a decimal point, are scores.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from loragate.finetune.data.errors import InvalidLine
from loragate.finetune.data.examples import MAX_LABELS, Label
from loragate.finetune.data.loss_mask import LabelNumbers
from loragate.peft_format.classification import ProblemType

SCORE = "score"  # the name of the only output where labels are scores
_QUOTED = 10  # labels in a message
_FIELD = "label"


class LabelKind(StrEnum):
    """The JSON type of a file's labels."""

    NAME = "string"
    NUMBER = "number"
    NAMES = "list of strings"


@dataclass(frozen=True)
class LabelFacts:
    """The labels of a whole file. `names`, in order of their first line, have the number of their examples and that
    line; numbers are among them as text, at most `MAX_LABELS` + 1. `scores`: a number is not an integer."""

    kind: LabelKind
    names: tuple[str, ...]
    counts: tuple[int, ...]
    first_lines: tuple[int, ...]
    scores: bool = False

    def to_document(self) -> dict[str, Any]:
        """Return the facts as JSON for `from_document`."""
        return asdict(self)

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "LabelFacts":
        """Return the facts that `to_document` wrote."""
        lists = {name: tuple(document[name]) for name in ("names", "counts", "first_lines")}
        return cls(LabelKind(document["kind"]), **lists, scores=document["scores"])

    @property
    def problem_type(self) -> ProblemType:
        """What a head is trained to compute."""
        if self.kind is LabelKind.NAMES:
            return ProblemType.MULTI_LABEL
        return ProblemType.REGRESSION if self.scores else ProblemType.SINGLE_LABEL

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the head's outputs, in order: names by the alphabet, numbers by size."""
        if self.problem_type is ProblemType.REGRESSION:
            return (SCORE,)
        return tuple(sorted(self.names, key=int if self.kind is LabelKind.NUMBER else None))

    def rejection(self) -> str | None:
        """Return why nothing can be learned from these labels, or None if something can."""
        match self.problem_type:
            case ProblemType.SINGLE_LABEL if len(self.names) < 2:
                return "Every example has the same `label`; at least two classes are required."
            case ProblemType.MULTI_LABEL if not self.names:
                return "No example has a label: every `label` is an empty list."
            case ProblemType.REGRESSION if len(set(map(float, self.names))) < 2:
                return "Every example has the same `label`; there is nothing to learn."
            case ProblemType.SINGLE_LABEL if len(self.names) > MAX_LABELS:
                return (
                    f"`label` has more than {MAX_LABELS} different integers; at most {MAX_LABELS} classes are "
                    "supported. Write scores as numbers with a decimal point."
                )
        return None


class LabelCensus:
    """Collects the labels of a file, line by line."""

    def __init__(self) -> None:
        self._kind: LabelKind | None = None
        self._counts: Counter[str] = Counter()
        self._first_lines: list[int] = []
        self._numbers: dict[str, int] = {}
        self._scores = False

    @property
    def facts(self) -> LabelFacts | None:
        """The labels so far; None without any."""
        if self._kind is None:
            return None
        counts = tuple(self._counts[name] for name in self._numbers)
        return LabelFacts(self._kind, tuple(self._numbers), counts, tuple(self._first_lines), self._scores)

    def add(self, label: Label, line: int) -> None:
        """Count the label of a line. Raise InvalidLine if it does not fit those of earlier lines."""
        kind = _kind(label)
        if self._kind not in (None, kind):
            raise InvalidLine(f"Invalid '{_FIELD}': it is a {kind}, but in earlier lines a {self._kind}", _FIELD)
        names = label if isinstance(label, list) else [str(label)]
        if kind is not LabelKind.NUMBER and len(self._numbers.keys() | set(names)) > MAX_LABELS:
            raise InvalidLine(f"Invalid '{_FIELD}': it makes more than {MAX_LABELS} different labels", _FIELD)
        self._kind = kind
        self._scores = self._scores or isinstance(label, float)
        for name in names:
            if name not in self._numbers:
                if len(self._numbers) > MAX_LABELS:
                    return  # only numbers, of which there are more than classes
                self._numbers[name] = len(self._numbers)
                self._first_lines.append(line)
            self._counts[name] += 1

    def numbers(self, label: Label) -> LabelNumbers:
        """Return a label that was counted as numbers."""
        if isinstance(label, int | float):
            return (float(label),)
        return tuple(float(self._numbers[name]) for name in (label if isinstance(label, list) else [label]))


@dataclass(frozen=True)
class LabelSet:
    """What a head is trained to compute. `labels` are the names of its outputs, in order."""

    problem_type: ProblemType
    labels: tuple[str, ...]

    @classmethod
    def of(cls, training: LabelFacts) -> "LabelSet":
        """Return the set that a training file has."""
        return cls(training.problem_type, training.outputs)

    def unknown(self, facts: LabelFacts) -> str | None:
        """Return why another file cannot be used with these labels, or None if it can."""
        if (facts.kind is LabelKind.NAMES) != (self.problem_type is ProblemType.MULTI_LABEL):
            return f"Its labels are of the type {facts.kind}, which is not that of the training file."
        if self.problem_type is ProblemType.REGRESSION:
            return None if facts.kind is LabelKind.NUMBER else "Its labels are strings; the training file has numbers."
        known = frozenset(self.labels)
        for name, line in zip(facts.names, facts.first_lines, strict=True):
            if name not in known:
                return f"Line {line}: Invalid '{_FIELD}': no example of the training file has this label."
        return None

    def missing(self, facts: LabelFacts) -> tuple[str, ...]:
        """Return the labels of which another file has no example."""
        if self.problem_type is ProblemType.REGRESSION:
            return ()
        return tuple(sorted(frozenset(self.labels) - frozenset(facts.names)))

    def places(self, facts: LabelFacts) -> dict[float, int]:
        """Return the outputs by the numbers that a file of tokens with these facts has for labels."""
        place = {name: index for index, name in enumerate(self.labels)}
        numbers = map(float, facts.names if facts.kind is LabelKind.NUMBER else range(len(facts.names)))
        return {number: place[name] for number, name in zip(numbers, facts.names, strict=True)}


def quoted_labels(labels: Sequence[str]) -> str:
    """Return the first labels for a message."""
    shown = ", ".join(f"'{label}'" for label in labels[:_QUOTED])
    return shown if len(labels) <= _QUOTED else f"{shown} and {len(labels) - _QUOTED} more"


def _kind(label: Label) -> LabelKind:
    if isinstance(label, str):
        return LabelKind.NAME
    return LabelKind.NAMES if isinstance(label, list) else LabelKind.NUMBER
