"""The configuration of a fine-tune worker."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from loragate.adapter_store.signatures.policy import UNSIGNED, SignaturePolicy
from loragate.engine.fleet.addresses import EngineAddress
from loragate.engine.link_security import LinkTls
from loragate.finetune.sandbox import Sandbox
from loragate.finetune.training.protocol.trainer_settings import TrainerSettings

TrainingPrices = Mapping[str | None, int]
"""The price of a token in training by tenant, in 10⁻¹⁰ of the currency's unit; None stands for all others."""


@dataclass(frozen=True)
class TrainerPatience:
    """The times that a worker waits for a trainer before it kills it.

    `stop_seconds`: for a last checkpoint after an order, of which the worker learns within 5 seconds;
    `yield_seconds`: for the same where it only makes room for others; `silence_seconds`: for a sign of life, which a
    healthy trainer sends every 5 seconds, also while it loads a model.
    """

    stop_seconds: float = 15.0
    silence_seconds: float = 300.0
    yield_seconds: float = 300.0


@dataclass(frozen=True)
class WorkerConfig:
    """The configuration of a worker. `name` is unique among all workers; `model` is the base model's folder."""

    name: str
    model: Path
    workspace: Path
    max_jobs_per_tenant: int = 1  # jobs of one tenant in training at once, over all workers
    row_tokens: int = 4096  # tokens per forward pass
    checkpoint_steps: int = 100  # maximum steps between two checkpoints
    backup_interval_seconds: float = 60.0  # minimum between two backups for other machines
    trainer: TrainerSettings = field(default_factory=TrainerSettings)
    patience: TrainerPatience = field(default_factory=TrainerPatience)
    sandbox: Sandbox | None = None
    quantum_seconds: float = 600.0  # in training, before it makes room for jobs of other tenants
    metering_seconds: float = 30.0  # between two records of a run's usage
    training_prices: TrainingPrices = field(default_factory=dict)
    poll_seconds: float = 1.0
    data_wait_seconds: float = 60.0  # wait for appended lines before queued jobs go first
    cleanup_interval_seconds: float = 600.0
    max_workspace_bytes: int = 50 << 30  # files in use may exceed it
    min_free_bytes: int = 1 << 30  # of the workspace's disk, for which files that are not in use are removed

    def training_price(self, tenant_id: str) -> int | None:
        """Return the price of a token in training for this tenant; None without prices."""
        return self.training_prices.get(tenant_id, self.training_prices.get(None))

    def __post_init__(self) -> None:
        for name in ("max_jobs_per_tenant", "row_tokens", "checkpoint_steps"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")


MAX_NICENESS = 19


@dataclass(frozen=True)
class ServiceConfig:
    """The configuration of a worker process. `model` is the served base model's folder or hub id.

    `name` is unique while the process lives. A process that reuses a name first releases the jobs of the previous one.
    """

    name: str
    model: str
    database_url: str
    blob_url: str
    secret_key: bytes = field(repr=False)
    engine_target: str | None  # of the first engine
    engine_secret: str = field(repr=False)
    engine_tls: LinkTls | None
    workspace: Path
    trainer: TrainerSettings
    engines: tuple[EngineAddress, ...] = ()  # further ones, beside those that are registered in the database
    nice: int = MAX_NICENESS  # serving takes precedence
    max_jobs_per_tenant: int = 1  # jobs of one tenant in training at once
    max_workspace_bytes: int = 50 << 30
    patience: TrainerPatience = field(default_factory=TrainerPatience)
    quantum_seconds: float = 600.0
    sandbox: Sandbox | None = None
    training_prices: TrainingPrices = field(default_factory=dict)
    previous_secret_keys: tuple[bytes, ...] = field(default=(), repr=False)
    previous_engine_secrets: tuple[str, ...] = field(default=(), repr=False)
    signatures: SignaturePolicy = UNSIGNED  # of adapters that are published
    min_free_bytes: int = 1 << 30  # of local disks, which results, snapshots and the workspace leave to others
