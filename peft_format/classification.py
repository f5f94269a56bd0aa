"""Classification heads: the tasks for which PEFT trains one, and the meaning of its outputs."""

from dataclasses import dataclass
from enum import StrEnum

HEAD_NAMES = ("classifier", "score")
"""The names that PEFT adds to modules_to_save for every task, not only the one that the model's head has."""


class Task(StrEnum):
    """What a head computes logits for. The values are those of PEFT's `task_type`."""

    SEQUENCE = "SEQ_CLS"  # the text: AutoModelForSequenceClassification
    TOKENS = "TOKEN_CLS"  # each of its tokens: AutoModelForTokenClassification


class ProblemType(StrEnum):
    """What logits stand for. The values are those of `problem_type` in transformers' configs."""

    SINGLE_LABEL = "single_label_classification"  # probabilities that add up to 1: softmax
    MULTI_LABEL = "multi_label_classification"  # a probability of each label: sigmoid
    REGRESSION = "regression"  # the values themselves


@dataclass(frozen=True)
class ClassifierHead:
    """The head that transformers' class for a task puts on this base model, in place of the one for tokens.

    Attributes:
        name: its path in that class, e.g. "score".
        in_features: the width of the final states.
        bias: it has a bias, [labels].
    """

    name: str
    in_features: int
    bias: bool = False


@dataclass(frozen=True)
class Classifier:
    """What an adapter with a head is for.

    Attributes:
        labels: their names, by the head's outputs.
        problem_type: None if the config does not have it, as PEFT's own does not.
    """

    task: Task
    labels: tuple[str, ...]
    problem_type: ProblemType | None = None

    @property
    def activation(self) -> ProblemType:
        """What logits are turned into: as `problem_type` says, else as transformers' pipelines decide.

        A softmax over one label would always be 1, so a single label has a sigmoid.
        """
        if self.problem_type in (ProblemType.MULTI_LABEL, ProblemType.REGRESSION):
            return self.problem_type
        return ProblemType.SINGLE_LABEL if len(self.labels) > 1 else ProblemType.MULTI_LABEL


def default_labels(count: int) -> tuple[str, ...]:
    """Return the labels of a classifier whose config does not name them, as transformers calls them."""
    return tuple(f"LABEL_{number}" for number in range(count))
