"""The schema of backups and restorations: what keeps the sweep from removing bytes."""

from datetime import datetime

from sqlalchemy import String
from sqlalchemy.orm import Mapped, mapped_column

from loragate.adapter_store.tables.base import Base


class SweepHoldRow(Base):
    """A running backup needs all bytes that its snapshot refers to; it renews its hold."""

    __tablename__ = "sweep_holds"

    id: Mapped[str] = mapped_column(String(64), primary_key=True)  # the backup's
    expires_at: Mapped[datetime]  # by the database's clock


class RestorationRow(Base):
    """One life of the installation, from a restoration to the next; the sweep is held until it is confirmed."""

    __tablename__ = "restorations"

    epoch: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    backup_id: Mapped[str] = mapped_column(String(64))
    backup_at: Mapped[datetime]
    restored_at: Mapped[datetime]
    version_floor: Mapped[int]  # all version numbers of this epoch are greater
    confirmed_at: Mapped[datetime | None]
