"""The table of named admin keys."""

from datetime import datetime

from sqlalchemy import Index, String
from sqlalchemy.orm import Mapped, mapped_column

from loragate.adapter_store.tables.base import Base


class AdminKeyRow(Base):
    """An admin key besides the installation's own, which is a fact in `installation`."""

    __tablename__ = "admin_keys"
    __table_args__ = (Index(None, "created_at", "id"),)

    id: Mapped[str] = mapped_column(String(64), primary_key=True)  # public part of the key
    name: Mapped[str]
    key_hash: Mapped[bytes]
    secret_id: Mapped[str | None] = mapped_column(String(16))  # as in `api_keys`
    expires_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]
    last_used_at: Mapped[datetime | None]
    created_at: Mapped[datetime]
