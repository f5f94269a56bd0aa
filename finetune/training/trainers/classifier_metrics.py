"""Metrics of a classifier on validation data: accuracy, F1 and the confusion matrix, or the error of scores."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from loragate.finetune.data.labels import LabelSet
from loragate.peft_format.classification import ProblemType

Array = npt.NDArray[Any]

MAX_DETAILED_LABELS = 100
SCALARS = ("accuracy", "macro_f1", "mse", "pearson")


@dataclass(frozen=True)
class LabelMetrics:
    """One label: `examples` that have it, and the share of predictions and of examples that are right."""

    label: str
    examples: int
    precision: float
    recall: float
    f1: float


@dataclass(frozen=True)
class Evaluation:
    """The metrics of a classifier on `examples`; None where the problem type does not have them.

    `accuracy` counts examples of which everything is right, the set of all labels, too. `macro_f1` is the mean over the
    labels that an example or a prediction has, as in scikit-learn. `labels` and `confusion_matrix` (rows: the labels of
    the examples; columns: the predicted ones) are None beyond `MAX_DETAILED_LABELS`.
    """

    problem_type: str
    examples: int
    accuracy: float | None = None
    macro_f1: float | None = None
    mse: float | None = None
    pearson: float | None = None
    labels: list[LabelMetrics] | None = None
    confusion_matrix: list[list[int]] | None = None

    def to_document(self) -> dict[str, Any]:
        """Return the evaluation as JSON."""
        return asdict(self)

    def scalars(self) -> dict[str, float]:
        """Return the numbers that there are, by name."""
        return {name: value for name in SCALARS if (value := getattr(self, name)) is not None}


def predictions(logits: Array, problem_type: ProblemType) -> Array:
    """Return what logits [n, labels] predict: the class [n], whether each label applies [n, labels], or a score [n]."""
    if problem_type is ProblemType.SINGLE_LABEL:
        return np.asarray(logits.argmax(-1))
    return logits > 0 if problem_type is ProblemType.MULTI_LABEL else logits[:, 0]


def evaluate(predicted: Array, actual: Array, labels: LabelSet) -> Evaluation:
    """Compare predictions with the labels of the examples, of the same shape."""
    if labels.problem_type is ProblemType.REGRESSION:
        return _regression(predicted.astype(np.float64), actual.astype(np.float64))
    count = len(labels.labels)
    detailed = count <= MAX_DETAILED_LABELS
    matrix = None
    if labels.problem_type is ProblemType.SINGLE_LABEL:
        predicted, actual = predicted.astype(np.int64), actual.astype(np.int64)
        right = predicted == actual
        hits, guessed, existing = (np.bincount(of, minlength=count) for of in (actual[right], predicted, actual))
        if detailed:
            matrix = np.bincount(count * actual + predicted, minlength=count * count).reshape(count, count).tolist()
    else:
        predicted, actual = predicted.astype(bool), actual.astype(bool)
        right = (predicted == actual).all(-1)
        hits, guessed, existing = ((of).sum(0) for of in (predicted & actual, predicted, actual))
    precision, recall = _ratio(hits, guessed), _ratio(hits, existing)
    f1 = _ratio(2 * hits, guessed + existing)
    present = guessed + existing > 0
    each = zip(labels.labels, existing.tolist(), precision.tolist(), recall.tolist(), f1.tolist(), strict=True)
    return Evaluation(
        labels.problem_type.value,
        len(actual),
        accuracy=float(right.mean()),
        macro_f1=float(f1[present].mean()) if present.any() else 0.0,
        labels=[LabelMetrics(*values) for values in each] if detailed else None,
        confusion_matrix=matrix,
    )


def _regression(predicted: Array, actual: Array) -> Evaluation:
    varied = predicted.std() > 0 and actual.std() > 0
    return Evaluation(
        ProblemType.REGRESSION.value,
        len(actual),
        mse=float(np.square(predicted - actual).mean()),
        pearson=float(np.corrcoef(predicted, actual)[0, 1]) if varied else None,
    )


def _ratio(part: Array, whole: Array) -> Array:
    """Divide; 0 where there is nothing to divide by."""
    return np.divide(part, whole, out=np.zeros(len(part)), where=whole > 0)
