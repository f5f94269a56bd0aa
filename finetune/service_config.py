"""What the fine-tune worker's process is started with."""

from dataclasses import dataclass, field
from pathlib import Path

from loragate.finetune.training.operator_settings import TrainerSettings

NICEST = 19


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
    nice: int = NICEST  # whoever serves comes first
    most_of_tenant: int = 1  # jobs of one tenant in training at once
    max_workspace_bytes: int = 50 << 30
