"""The audit log, and what was purged from it."""

from datetime import datetime

from sqlalchemy import (
    Index,
    String,
    Text,
)
from sqlalchemy.orm import Mapped, mapped_column

from loragate.adapter_store.tables.base import Base, TenantOwned


class AuditRow(TenantOwned, Base):
    """The append-only audit log: triggers reject UPDATE and DELETE. A `tenant_id` of "" is the installation's."""

    __tablename__ = "audit_log"
    __table_args__ = (Index(None, "created_at", "id"), Index(None, "tenant_id", "created_at", "id"))

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    created_at: Mapped[datetime]
    actor: Mapped[str] = mapped_column(Text)
    action: Mapped[str] = mapped_column(String(64))
    target: Mapped[str]
    before: Mapped[str | None] = mapped_column(Text)  # JSON
    after: Mapped[str | None] = mapped_column(Text)
    request_id: Mapped[str] = mapped_column(String(128))


class AuditPurgeRow(Base):
    """The database rejects the removal of events that are younger than the last of these moments."""

    __tablename__ = "audit_purges"

    purged_before: Mapped[datetime] = mapped_column(primary_key=True)
