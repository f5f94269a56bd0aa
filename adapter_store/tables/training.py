"""The schema of the training API: sessions, runs and their commands, checkpoints, samplers and their samples."""

from datetime import datetime

from sqlalchemy import BigInteger, ForeignKeyConstraint, Index, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from loragate.adapter_store.tables.base import Base, TenantOwned


class TrainingSessionRow(TenantOwned, Base):
    """A client's session. Without a heartbeat since `seen_at` it expires."""

    __tablename__ = "training_sessions"
    __table_args__ = (
        ForeignKeyConstraint(["tenant_id"], ["tenants.id"]),
        Index(None, "tenant_id", "created_at", "id"),
        Index(None, "finished_at", "seen_at"),
    )

    tenant_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    key_id: Mapped[str] = mapped_column(String(64))
    sdk_version: Mapped[str] = mapped_column(String(64))
    display_name: Mapped[str | None]
    tags: Mapped[str] = mapped_column(Text)  # JSON
    user_metadata: Mapped[str] = mapped_column(Text)  # JSON
    created_at: Mapped[datetime]
    seen_at: Mapped[datetime]
    finished_at: Mapped[datetime | None]
    finish_reason: Mapped[str | None] = mapped_column(String(16))


class TrainingRunRow(TenantOwned, Base):
    """A run: the weights of one adapter in training. `worker` holds it until `held_until`, by the database's clock.

    Its state after the command `snapshot_seq` is stored in the file `snapshot_file`; the commands after it are kept
    with their payloads, so that a trainer can run them again.
    """

    __tablename__ = "training_runs"
    __table_args__ = (
        ForeignKeyConstraint(["tenant_id", "session_id"], ["training_sessions.tenant_id", "training_sessions.id"]),
        Index(None, "tenant_id", "created_at", "id"),
        Index(None, "tenant_id", "session_id"),
        Index(None, "status", "held_until"),
    )

    tenant_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    id: Mapped[str] = mapped_column(String(128), primary_key=True)
    session_id: Mapped[str] = mapped_column(String(64))
    key_id: Mapped[str] = mapped_column(String(64))
    status: Mapped[str] = mapped_column(String(16))
    rank: Mapped[int | None]
    settings: Mapped[str] = mapped_column(Text)  # JSON
    user_metadata: Mapped[str] = mapped_column(Text)  # JSON
    next_seq: Mapped[int] = mapped_column(BigInteger)  # of the command that is run next
    gradients_failed: Mapped[bool]  # a forward_backward failed since the last optim_step
    steps: Mapped[int]  # of the optimizer
    trained_tokens: Mapped[int] = mapped_column(BigInteger)
    snapshot_seq: Mapped[int | None] = mapped_column(BigInteger)
    snapshot_file: Mapped[str | None] = mapped_column(String(64))
    worker: Mapped[str | None] = mapped_column(String(64))
    held_until: Mapped[datetime | None]
    created_at: Mapped[datetime]
    used_at: Mapped[datetime]
    ended_at: Mapped[datetime | None]


class TrainingCommandRow(TenantOwned, Base):
    """A command of a run. Its order is `seq`, not the time of its arrival. Number 0 creates the run."""

    __tablename__ = "training_commands"
    __table_args__ = (ForeignKeyConstraint(["tenant_id", "run_id"], ["training_runs.tenant_id", "training_runs.id"]),)

    tenant_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    run_id: Mapped[str] = mapped_column(String(128), primary_key=True)
    seq: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    kind: Mapped[str] = mapped_column(String(32))
    digest: Mapped[bytes]  # SHA-256 of the request
    payload: Mapped[bytes | None]  # None once no trainer needs it again
    loss: Mapped[float | None]  # of a forward_backward that was done
    tokens: Mapped[int | None]  # that it was computed for
    status: Mapped[str] = mapped_column(String(8))
    result: Mapped[bytes | None]
    error: Mapped[str | None] = mapped_column(Text)
    category: Mapped[str | None] = mapped_column(String(8))
    created_at: Mapped[datetime]
    finished_at: Mapped[datetime | None]


class TrainingCheckpointRow(TenantOwned, Base):
    """A named checkpoint: its state in a file, its adapter's bytes by `digest`, and the version that it became."""

    __tablename__ = "training_checkpoints"
    __table_args__ = (
        ForeignKeyConstraint(["tenant_id", "run_id"], ["training_runs.tenant_id", "training_runs.id"]),
        Index(None, "tenant_id", "digest"),
        Index(None, "expires_at"),
    )

    tenant_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    run_id: Mapped[str] = mapped_column(String(128), primary_key=True)
    kind: Mapped[str] = mapped_column(String(16), primary_key=True)
    name: Mapped[str] = mapped_column(String(128), primary_key=True)
    state_file: Mapped[str | None] = mapped_column(String(64))
    adapter: Mapped[str | None] = mapped_column(String(64))
    version: Mapped[int | None]
    digest: Mapped[str]
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    user_metadata: Mapped[str] = mapped_column(Text)  # JSON
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime | None]


class SamplerRow(TenantOwned, Base):
    """A sampling session: the weights by `digest`, or the base model's. An unnamed one's bytes go with it."""

    __tablename__ = "training_samplers"
    __table_args__ = (
        ForeignKeyConstraint(["tenant_id", "session_id"], ["training_sessions.tenant_id", "training_sessions.id"]),
        Index(None, "tenant_id", "digest"),
    )

    tenant_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    id: Mapped[str] = mapped_column(String(128), primary_key=True)
    session_id: Mapped[str] = mapped_column(String(64))
    model_path: Mapped[str | None]
    adapter: Mapped[str | None]  # the name under which its samples are metered
    version: Mapped[int | None]
    digest: Mapped[str | None]
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    created_at: Mapped[datetime]


class SampleRow(TenantOwned, Base):
    """A request for samples. `worker`, a gateway, runs it until `held_until`."""

    __tablename__ = "training_samples"
    __table_args__ = (
        ForeignKeyConstraint(["tenant_id", "sampler_id"], ["training_samplers.tenant_id", "training_samplers.id"]),
    )

    tenant_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    sampler_id: Mapped[str] = mapped_column(String(128), primary_key=True)
    seq: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    digest: Mapped[bytes]
    status: Mapped[str] = mapped_column(String(8))
    result: Mapped[bytes | None]
    error: Mapped[str | None] = mapped_column(Text)
    category: Mapped[str | None] = mapped_column(String(8))
    worker: Mapped[str] = mapped_column(String(64))
    held_until: Mapped[datetime]
    created_at: Mapped[datetime]
    finished_at: Mapped[datetime | None]
