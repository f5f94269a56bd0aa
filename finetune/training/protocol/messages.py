"""The messages of the training process, in order of events."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Metrics:
    """Metrics since the previous message; None where they were not measured."""

    step: int
    steps: int | None  # total; None while it is unknown
    epoch: float
    train_loss: float | None = None
    learning_rate: float | None = None
    grad_norm: float | None = None
    token_accuracy: float | None = None
    valid_loss: float | None = None
    valid_token_accuracy: float | None = None
    valid_accuracy: float | None = None  # these four of a classifier
    valid_macro_f1: float | None = None
    valid_mse: float | None = None
    valid_pearson: float | None = None


@dataclass(frozen=True, slots=True)
class Stepped:
    """A step or an evaluation was completed."""

    metrics: Metrics


@dataclass(frozen=True, slots=True)
class Checkpointed:
    """A checkpoint is complete, in this subfolder of the run's folder."""

    folder: str


@dataclass(frozen=True, slots=True)
class Waiting:
    """The run waits for lines to be appended; `steps` are done."""

    steps: int


@dataclass(frozen=True, slots=True)
class Alive:
    """The process runs. Sent periodically during all work."""


@dataclass(frozen=True, slots=True)
class Stopped:
    """The run was stopped and has saved a checkpoint. Final."""

    steps: int


@dataclass(frozen=True, slots=True)
class Finished:
    """The adapter is in this subfolder of the run's folder. Final. `evaluation` is a classifier's, on the validation
    data; see `classifier_metrics`."""

    steps: int
    folder: str
    evaluation: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """The run has failed. Final. `message` is shown to the tenant."""

    code: str
    message: str


TrainerMessage = Stepped | Checkpointed | Waiting | Alive | Stopped | Finished | Failed
FINAL = (Stopped, Finished, Failed)
DIED = "trainer_died"
"""The code of a process that ended without a final message of its own."""

_KINDS: dict[str, type[TrainerMessage]] = {
    kind.__name__: kind for kind in (Checkpointed, Waiting, Alive, Stopped, Finished, Failed)
}


def message_from(document: dict[str, Any]) -> TrainerMessage:
    """Return the message of a JSON line, which holds its kind beside its fields."""
    kind = document.pop("kind")
    if kind == Stepped.__name__:
        return Stepped(Metrics(**document["metrics"]))
    return _KINDS[kind](**document)
