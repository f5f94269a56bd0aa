"""The schema of usage: the ledger and its sums."""

from datetime import datetime

from sqlalchemy import BigInteger, Index, String
from sqlalchemy.orm import Mapped, mapped_column

from loragate.adapter_store.tables.base import Base, TenantOwned


class UsageRecordRow(TenantOwned, Base):
    """The ledger: one immutable row for each request, without foreign keys, so that no write waits for another row."""

    __tablename__ = "usage_records"
    __table_args__ = (Index(None, "started_at"), Index(None, "tenant_id", "adapter", "started_at"))

    tenant_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    request_id: Mapped[str]
    key_id: Mapped[str] = mapped_column(String(64))
    endpoint: Mapped[str] = mapped_column(String(64))
    base_model: Mapped[str]
    adapter: Mapped[str | None] = mapped_column(String(64))
    adapter_version: Mapped[int | None]
    adapter_alias: Mapped[str | None] = mapped_column(String(64))  # named in the request
    adapter_digest: Mapped[str | None]
    prompt_tokens: Mapped[int] = mapped_column(BigInteger)
    completion_tokens: Mapped[int] = mapped_column(BigInteger)
    cached_tokens: Mapped[int] = mapped_column(BigInteger)
    computed_prompt_tokens: Mapped[int | None] = mapped_column(BigInteger)
    generated_tokens: Mapped[int | None] = mapped_column(BigInteger)
    ttft_ms: Mapped[int | None] = mapped_column(BigInteger)
    duration_ms: Mapped[int] = mapped_column(BigInteger)
    outcome: Mapped[str] = mapped_column(String(16))
    amount: Mapped[int | None] = mapped_column(BigInteger)
    engine_id: Mapped[str | None] = mapped_column(String(64))
    started_at: Mapped[datetime]
    training_tokens: Mapped[int] = mapped_column(BigInteger, server_default="0")


class RejectedRequestsRow(TenantOwned, Base):
    """Requests that were rejected before any work, by hour."""

    __tablename__ = "rejected_requests"

    tenant_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    start: Mapped[datetime] = mapped_column(primary_key=True)
    reason: Mapped[str] = mapped_column(String(16), primary_key=True)
    requests: Mapped[int] = mapped_column(BigInteger)


class UsageSumRow(TenantOwned, Base):
    """The ledger's sums by hour and by day, changed in the transaction that adds to the ledger."""

    __tablename__ = "usage_sums"
    __table_args__ = (Index(None, "width", "start"),)

    tenant_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    width: Mapped[str] = mapped_column(String(4), primary_key=True)  # hour or day
    start: Mapped[datetime] = mapped_column(primary_key=True)
    key_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    endpoint: Mapped[str] = mapped_column(String(64), primary_key=True)
    base_model: Mapped[str] = mapped_column(primary_key=True)
    adapter: Mapped[str] = mapped_column(String(64), primary_key=True)  # "" without one
    adapter_version: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)  # 0 without one
    requests: Mapped[int] = mapped_column(BigInteger)
    prompt_tokens: Mapped[int] = mapped_column(BigInteger)
    completion_tokens: Mapped[int] = mapped_column(BigInteger)
    cached_tokens: Mapped[int] = mapped_column(BigInteger)
    computed_prompt_tokens: Mapped[int] = mapped_column(BigInteger, server_default="0")
    generated_tokens: Mapped[int] = mapped_column(BigInteger, server_default="0")
    amount: Mapped[int] = mapped_column(BigInteger)
    training_tokens: Mapped[int] = mapped_column(BigInteger, server_default="0")
    training_ms: Mapped[int] = mapped_column(BigInteger, server_default="0")
