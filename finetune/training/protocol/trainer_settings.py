"""The operator's settings for all training processes of a machine."""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class TrainerSettings:
    """Settings of every training process."""

    threads: int = 1  # maximum
    device: str = "auto"  # auto, cpu, cuda, cuda:N
    memory_bytes: int | None = None  # None: unlimited
    idle_priority: bool = False  # compute only when nothing else on the machine wants to
    report_to: tuple[str, ...] = ()  # tensorboard, mlflow, wandb: in addition to events and metrics

    def __post_init__(self) -> None:
        if self.threads < 1:
            raise ValueError(f"threads must be at least 1, got {self.threads}")

    @property
    def dedicated_device(self) -> bool:
        """Whether training has a device of its own, which the engine does not use."""
        return ":" in self.device

    def to_document(self) -> dict[str, Any]:
        """Return the settings as JSON for `from_document`."""
        return asdict(self)

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> "TrainerSettings":
        """Return the settings that `to_document` wrote."""
        return cls(**{**document, "report_to": tuple(document["report_to"])})
