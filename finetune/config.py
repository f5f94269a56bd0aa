"""How a worker works, whatever it works on."""

from dataclasses import dataclass, field
from pathlib import Path

from loragate.finetune.training.protocol.trainer_settings import TrainerSettings


@dataclass(frozen=True)
class WorkerConfig:
    """`name` is this process's among all workers. `model` is the base model's folder."""

    name: str
    model: Path
    workspace: Path
    max_jobs_per_tenant: int = 1  # jobs of one tenant in training at once, on all workers together
    row_tokens: int = 4096  # that go through the model at once
    checkpoint_steps: int = 100  # at the most between two
    backup_interval_seconds: float = 60.0  # at the least between two that are kept for other machines
    trainer: TrainerSettings = field(default_factory=TrainerSettings)
    poll_seconds: float = 1.0
    data_wait_seconds: float = 60.0  # for lines that do not come, while other jobs wait for their turn
    cleanup_interval_seconds: float = 600.0
    max_workspace_bytes: int = 50 << 30  # but for what is in use

    def __post_init__(self) -> None:
        for name in ("max_jobs_per_tenant", "row_tokens", "checkpoint_steps"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")


MAX_NICENESS = 19


@dataclass(frozen=True)
class ServiceConfig:
    """`model` is the served base model's folder or hub id. `name` is this process's alone while it lives: whoever has
    it next begins by letting go of what the last one held."""

    name: str
    model: str
    database_url: str
    blob_url: str
    secret_key: bytes = field(repr=False)
    engine_target: str
    workspace: Path
    trainer: TrainerSettings
    nice: int = MAX_NICENESS  # whoever serves comes first
    max_jobs_per_tenant: int = 1  # jobs of one tenant in training at once
    max_workspace_bytes: int = 50 << 30
