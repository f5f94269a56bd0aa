"""Tenants, their keys, and the replies that repeated requests get again."""

from datetime import datetime

from sqlalchemy import (
    CheckConstraint,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    String,
    false,
    text,
)
from sqlalchemy.orm import Mapped, mapped_column

from loragate.adapter_store.limits import Limits, TenantLimits
from loragate.adapter_store.tables.base import Base, TenantOwned
from loragate.adapter_store.tables.columns import LimitsColumn, TagsColumn

_ALIVE = text("deleted_at IS NULL")


class TenantRow(Base):
    __tablename__ = "tenants"
    __table_args__ = (
        CheckConstraint("weight > 0", name="weight_positive"),
        Index("uq_tenants_alive_name", "name", unique=True, sqlite_where=_ALIVE, postgresql_where=_ALIVE),
        Index(None, "created_at", "id"),
    )

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    name: Mapped[str]
    weight: Mapped[float]
    limits: Mapped[TenantLimits] = mapped_column(LimitsColumn(TenantLimits), nullable=True)
    signers: Mapped[tuple[str, ...]] = mapped_column(TagsColumn, nullable=True)  # none: the operator's policy holds
    store_responses_by_default: Mapped[bool] = mapped_column(server_default=false())
    created_at: Mapped[datetime]
    updated_at: Mapped[datetime]
    deleted_at: Mapped[datetime | None]


class ApiKeyRow(TenantOwned, Base):
    __tablename__ = "api_keys"
    __table_args__ = (
        ForeignKeyConstraint(["tenant_id"], ["tenants.id"]),
        Index(None, "tenant_id", "created_at", "id"),
    )

    id: Mapped[str] = mapped_column(String(64), primary_key=True)  # public part of the key
    name: Mapped[str]
    key_hash: Mapped[bytes]
    secret_id: Mapped[str | None] = mapped_column(String(16))  # of the secret that the hash was made with; None: any
    scopes: Mapped[str]  # blank-separated
    limits: Mapped[Limits] = mapped_column(LimitsColumn(Limits), nullable=True)
    expires_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]
    rotated_from: Mapped[str | None] = mapped_column(String(64), ForeignKey("api_keys.id"))
    last_used_at: Mapped[datetime | None]
    created_at: Mapped[datetime]


class IdempotencyReplyRow(TenantOwned, Base):
    """A `tenant_id` of "" is the operator's."""

    __tablename__ = "idempotency_replies"
    __table_args__ = (Index(None, "created_at"),)

    tenant_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    key_hash: Mapped[bytes] = mapped_column(primary_key=True)
    fingerprint: Mapped[bytes]
    token: Mapped[str] = mapped_column(String(64))  # of the claim that holds it
    claimed_until: Mapped[datetime]
    status: Mapped[int | None]
    sealed: Mapped[bytes | None]
    created_at: Mapped[datetime]
