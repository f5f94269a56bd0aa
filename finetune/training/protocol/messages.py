"""What the process that trains says, in the order in which it happens."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Metrics:
    """Of the steps since the last ones; None where they were not taken."""

    step: int
    steps: int | None  # in all; None while nobody knows
    epoch: float
    train_loss: float | None = None
    learning_rate: float | None = None
    grad_norm: float | None = None
    token_accuracy: float | None = None
    valid_loss: float | None = None
    valid_token_accuracy: float | None = None


@dataclass(frozen=True, slots=True)
class Stepped:
    """A step was made, or a look at the validation data."""

    metrics: Metrics


@dataclass(frozen=True, slots=True)
class Checkpointed:
    """A checkpoint is on the disk, in this folder of the run's."""

    folder: str


@dataclass(frozen=True, slots=True)
class Waiting:
    """For lines that are not there yet; so many steps are done."""

    steps: int


@dataclass(frozen=True, slots=True)
class Stopped:
    """It was told to, and has kept where it was. The last word."""

    steps: int


@dataclass(frozen=True, slots=True)
class Finished:
    """The adapter is in this folder of the run's. The last word."""

    steps: int
    folder: str


@dataclass(frozen=True, slots=True)
class Failed:
    """Nothing will come of it. The last word; its message is for the tenant."""

    code: str
    message: str


TrainerMessage = Stepped | Checkpointed | Waiting | Stopped | Finished | Failed

_KINDS: dict[str, type[TrainerMessage]] = {
    kind.__name__: kind for kind in (Checkpointed, Waiting, Stopped, Finished, Failed)
}


def message_from(document: dict[str, Any]) -> TrainerMessage:
    """What was written as a line of JSON: the kind beside its fields."""
    kind = document.pop("kind")
    if kind == Stepped.__name__:
        return Stepped(Metrics(**document["metrics"]))
    return _KINDS[kind](**document)
