"""What was purged from the audit log, whose events are in `base.AuditRow`."""

from datetime import datetime

from sqlalchemy.orm import Mapped, mapped_column

from loragate.adapter_store.tables.base import Base


class AuditPurgeRow(Base):
    """The database rejects the removal of events that are younger than the last of these moments."""

    __tablename__ = "audit_purges"

    purged_before: Mapped[datetime] = mapped_column(primary_key=True)
