"""The configuration of a trainer."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from loragate.adapter_store.signatures.policy import UNSIGNED, SignaturePolicy
from loragate.engine.fleet.addresses import EngineAddress
from loragate.engine.link_security import LinkTls
from loragate.finetune.config import TrainingPrices


@dataclass(frozen=True)
class TrainerConfig:
    """`model` is the served base model's folder or hub id. `name` is unique while the process lives: one that reuses a
    name first releases the runs of the previous one."""

    name: str
    model: str
    database_url: str
    blob_url: str
    secret_key: bytes = field(repr=False)
    engine_target: str | None  # of the first engine
    engine_secret: str = field(repr=False)
    engine_tls: LinkTls | None
    workspace: Path
    wakeup_dir: Path
    engines: tuple[EngineAddress, ...] = ()  # further ones, beside those that are registered in the database
    device: Literal["auto", "cpu", "cuda"] = "auto"
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    threads: int | None = None
    max_bytes: int = 4 << 30  # of adapters, gradients and moments in memory
    max_step_tokens: int = 4096  # in one computation; longer ones are cut
    step_bytes: int = 4 << 30  # of a GPU's memory, for what a step computes
    max_rank: int = 128
    checkpointing: bool = False  # recompute activations in the backward pass, to save memory
    snapshot_steps: int = 16  # of the optimizer between two snapshots of a run
    poll_seconds: float = 0.25  # between two looks at the queue without a wake-up
    training_prices: TrainingPrices = field(default_factory=dict)
    previous_secret_keys: tuple[bytes, ...] = field(default=(), repr=False)
    previous_engine_secrets: tuple[str, ...] = field(default=(), repr=False)
    signatures: SignaturePolicy = UNSIGNED
    min_free_bytes: int = 1 << 30

    def price(self, tenant_id: str) -> int | None:
        """Return the price of a trained token for this tenant; None without prices."""
        return self.training_prices.get(tenant_id, self.training_prices.get(None))
