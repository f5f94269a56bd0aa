"""One training sequence, and the checks of its arrays."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from loragate.trainer.errors import TrainingRejected

TARGETS = "target_tokens"
_FLOATS = (np.dtype(np.float32), np.dtype(np.float64))

Array = NDArray[np.generic]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Datum:
    """One sequence and the inputs of its loss.

    Attributes:
        tokens: int64 [T].
        inputs: `target_tokens` int64 [T] or [T, K], where the logits at position t score `target_tokens[t]`, and the
            arrays that the loss needs, [T] or shaped like `target_tokens`.
    """

    tokens: NDArray[np.int64]
    inputs: Mapping[str, Array]

    @property
    def targets(self) -> NDArray[np.int64]:
        """The targets as [T, K]."""
        return self.inputs[TARGETS].astype(np.int64, copy=False).reshape(self.tokens.shape[0], -1)


def check_tokens(datum: Datum, where: str, vocabulary: int, max_length: int) -> None:
    """Check the sequence and its targets. Raise TrainingRejected naming `where`, such as "data[3]"."""
    tokens = datum.tokens
    if tokens.ndim != 1 or tokens.shape[0] == 0:
        raise TrainingRejected(f"{where}.model_input: must be a sequence of at least one token")
    if tokens.shape[0] > max_length:
        raise TrainingRejected(
            f"{where}.model_input: has {tokens.shape[0]} tokens, but the model's context has {max_length}"
        )
    _check_ids(tokens, f"{where}.model_input", vocabulary)
    name = f"{where}.loss_fn_inputs.{TARGETS}"
    targets = datum.inputs.get(TARGETS)
    if targets is None:
        raise TrainingRejected(f"{name}: is missing")
    if targets.ndim not in (1, 2) or targets.shape[0] != tokens.shape[0] or targets.size == 0:
        raise TrainingRejected(
            f"{name}: must have the shape [{tokens.shape[0]}] or [{tokens.shape[0]}, K], not {list(targets.shape)}"
        )
    _check_ids(targets, name, vocabulary)


def check_values(datum: Datum, where: str, name: str, *, per_target: bool) -> None:
    """Check an array of numbers, [T] or (if `per_target`) shaped like the targets. Raise TrainingRejected."""
    values = datum.inputs[name]
    shapes = [datum.tokens.shape, datum.inputs[TARGETS].shape] if per_target else [datum.tokens.shape]
    field = f"{where}.loss_fn_inputs.{name}"
    if values.dtype not in _FLOATS and values.dtype.kind not in "iu":
        raise TrainingRejected(f"{field}: must be numbers, not {values.dtype}")
    if values.shape not in shapes:
        wanted = " or ".join(str(list(shape)) for shape in dict.fromkeys(shapes))
        raise TrainingRejected(f"{field}: must have the shape {wanted}, not {list(values.shape)}")
    if not np.isfinite(values).all():
        raise TrainingRejected(f"{field}: must be finite")


def _check_ids(ids: Array, field: str, vocabulary: int) -> None:
    if ids.dtype.kind not in "iu":
        raise TrainingRejected(f"{field}: must be token ids in int64, not {ids.dtype}")
    low, high = int(ids.min()), int(ids.max())
    if low < 0 or high >= vocabulary:
        raise TrainingRejected(f"{field}: has the id {low if low < 0 else high}, but the vocabulary has {vocabulary}")
