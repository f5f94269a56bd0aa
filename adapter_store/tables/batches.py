"""The schema of batches, and of the results of their lines until these are in the batch's files."""

from datetime import datetime

from sqlalchemy import BigInteger, ForeignKeyConstraint, Index, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from loragate.adapter_store.tables.base import Base, TenantOwned


class BatchRow(TenantOwned, Base):
    """A batch. `worker` holds it until `held_until`, by the database's clock."""

    __tablename__ = "batches"
    __table_args__ = (
        ForeignKeyConstraint(["tenant_id"], ["tenants.id"]),
        Index(None, "tenant_id", "created_at", "id"),
        Index(None, "status", "created_at"),
        Index(None, "created_at", "id"),
    )

    tenant_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    key_id: Mapped[str] = mapped_column(String(64))  # on whose behalf its lines are run
    endpoint: Mapped[str] = mapped_column(String(32))
    input_file: Mapped[str] = mapped_column(String(64))
    completion_window: Mapped[str] = mapped_column(String(8))
    output_seconds: Mapped[int | None]  # the lifetime of its files
    labels: Mapped[str] = mapped_column(Text)  # JSON; the API's `metadata`
    status: Mapped[str] = mapped_column(String(16))
    ending: Mapped[str | None] = mapped_column(String(16))  # the status once its files are written
    errors: Mapped[str | None] = mapped_column(Text)  # JSON
    output_file: Mapped[str | None] = mapped_column(String(64))
    error_file: Mapped[str | None] = mapped_column(String(64))
    total: Mapped[int]
    completed: Mapped[int]
    failed: Mapped[int]
    prompt_tokens: Mapped[int] = mapped_column(BigInteger)
    completion_tokens: Mapped[int] = mapped_column(BigInteger)
    cached_tokens: Mapped[int] = mapped_column(BigInteger)
    waits_for: Mapped[str | None] = mapped_column(Text)  # why it does not run, as a sentence
    waits_until: Mapped[datetime | None]
    worker: Mapped[str | None] = mapped_column(String(64))
    held_until: Mapped[datetime | None]
    served_at: Mapped[datetime | None]  # when a worker last claimed it
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime]
    in_progress_at: Mapped[datetime | None]
    cancelling_at: Mapped[datetime | None]
    finalizing_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]


class BatchLineRow(TenantOwned, Base):
    """The result of a line, which is there once: no line of a batch has two."""

    __tablename__ = "batch_lines"
    __table_args__ = (ForeignKeyConstraint(["tenant_id", "batch_id"], ["batches.tenant_id", "batches.id"]),)

    tenant_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    batch_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)  # in the input file, from 1
    failed: Mapped[bool]
    result: Mapped[str] = mapped_column(Text)  # its line of the output file or, if it failed, of the error file
