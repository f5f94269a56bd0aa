"""What an operator decides about all runs on a machine."""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class TrainerSettings:
    """Of every process that trains there, whatever it trains."""

    threads: int = 1  # at the most
    device: str = "auto"  # auto, cpu, cuda, cuda:N
    memory_bytes: int | None = None  # that it may take; None: what it needs
    idle_priority: bool = False  # behind whatever else wants to compute on this machine
    report_to: tuple[str, ...] = ()  # tensorboard, mlflow, wandb: beside events and metrics

    def __post_init__(self) -> None:
        if self.threads < 1:
            raise ValueError(f"threads must be at least 1, got {self.threads}")

    @property
    def dedicated_device(self) -> bool:
        """On a device that the operator chose, and the engine does not have."""
        return ":" in self.device

    def to_document(self) -> dict[str, Any]:
        """As JSON, to be read by `from_document`."""
        return asdict(self)

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> "TrainerSettings":
        """What `to_document` wrote."""
        return cls(**{**document, "report_to": tuple(document["report_to"])})
