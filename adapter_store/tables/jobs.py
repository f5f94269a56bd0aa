"""The schema of fine-tuning jobs, their events and their checkpoints."""

from datetime import datetime

from sqlalchemy import BigInteger, ForeignKeyConstraint, Index, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from loragate.adapter_store.tables.base import Base, TenantOwned


class JobRow(TenantOwned, Base):
    """A fine-tuning job. `worker` holds it until `held_until`, by the database's clock."""

    __tablename__ = "fine_tuning_jobs"
    __table_args__ = (
        ForeignKeyConstraint(["tenant_id"], ["tenants.id"]),
        Index(None, "tenant_id", "created_at", "id"),
        Index(None, "tenant_id", "fine_tuned_model"),
        Index(None, "status", "created_at"),
        Index(None, "created_at", "id"),
        Index("uq_fine_tuning_jobs_id", "id", unique=True),
    )

    tenant_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    method: Mapped[str] = mapped_column(String(16))
    model: Mapped[str]
    start_adapter_id: Mapped[str | None] = mapped_column(String(64))
    start_name: Mapped[str | None] = mapped_column(String(64))
    start_version: Mapped[int | None]
    start_digest: Mapped[str | None]
    training_file: Mapped[str] = mapped_column(String(64))
    validation_file: Mapped[str | None] = mapped_column(String(64))
    hyperparameters: Mapped[str] = mapped_column(Text)  # JSON, as requested
    suffix: Mapped[str | None] = mapped_column(String(64))
    seed: Mapped[int] = mapped_column(BigInteger)
    labels: Mapped[str] = mapped_column(Text)  # JSON; the API's `metadata`
    status: Mapped[str] = mapped_column(String(16))
    error_code: Mapped[str | None] = mapped_column(String(64))
    error_message: Mapped[str | None] = mapped_column(Text)
    error_param: Mapped[str | None]
    recipe: Mapped[str | None] = mapped_column(Text)  # JSON
    fine_tuned_model: Mapped[str | None]
    trained_tokens: Mapped[int | None] = mapped_column(BigInteger)
    result_file: Mapped[str | None] = mapped_column(String(64))
    evaluation: Mapped[str | None] = mapped_column(Text)  # JSON
    step: Mapped[int]
    steps: Mapped[int | None]
    last_event: Mapped[int]  # the highest number ever given
    wanted: Mapped[str | None] = mapped_column(String(16))
    worker: Mapped[str | None] = mapped_column(String(64))
    held_until: Mapped[datetime | None]
    attempts: Mapped[int]  # of workers that died during it, since its last progress
    metered_tokens: Mapped[int] = mapped_column(BigInteger, server_default="0")  # in the usage ledger
    metered_ms: Mapped[int] = mapped_column(BigInteger, server_default="0")
    created_at: Mapped[datetime]
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]


class JobEventRow(TenantOwned, Base):
    __tablename__ = "fine_tuning_events"
    __table_args__ = (
        ForeignKeyConstraint(["tenant_id", "job_id"], ["fine_tuning_jobs.tenant_id", "fine_tuning_jobs.id"]),
    )

    tenant_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    job_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    created_at: Mapped[datetime]
    level: Mapped[str] = mapped_column(String(8))
    type: Mapped[str] = mapped_column(String(16))
    message: Mapped[str] = mapped_column(Text)
    data: Mapped[str] = mapped_column(Text)  # JSON


class JobCheckpointRow(TenantOwned, Base):
    __tablename__ = "fine_tuning_checkpoints"
    __table_args__ = (
        ForeignKeyConstraint(["tenant_id", "job_id"], ["fine_tuning_jobs.tenant_id", "fine_tuning_jobs.id"]),
    )

    tenant_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    job_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    step: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    id: Mapped[str] = mapped_column(String(64))
    created_at: Mapped[datetime]
    metrics: Mapped[str] = mapped_column(Text)  # JSON
    model: Mapped[str | None]
