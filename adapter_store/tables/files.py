"""The schema of tenants' files. A file is an ordered list of pieces; an upload's parts are pieces without a file.

The rows of pieces are the inventory of files' bytes: a row is there before its bytes are, and until they are removed.
"""

from datetime import datetime
from enum import StrEnum

from sqlalchemy import BigInteger, ForeignKeyConstraint, Index, String, true
from sqlalchemy.orm import Mapped, mapped_column

from loragate.adapter_store.tables.base import Base, TenantOwned


class FileRow(TenantOwned, Base):
    __tablename__ = "files"
    __table_args__ = (
        ForeignKeyConstraint(["tenant_id"], ["tenants.id"]),
        Index(None, "tenant_id", "created_at", "id"),
    )

    tenant_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    filename: Mapped[str]
    purpose: Mapped[str] = mapped_column(String(32))
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime | None]
    deleted_at: Mapped[datetime | None]
    open_until: Mapped[datetime | None]  # None: closed
    format: Mapped[str | None] = mapped_column(String(32))  # of an open file's lines


class FileUploadRow(TenantOwned, Base):
    __tablename__ = "file_uploads"
    __table_args__ = (
        ForeignKeyConstraint(["tenant_id"], ["tenants.id"]),
        ForeignKeyConstraint(["tenant_id", "file_id"], ["files.tenant_id", "files.id"]),
        Index(None, "tenant_id", "status"),
    )

    tenant_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    filename: Mapped[str]
    purpose: Mapped[str] = mapped_column(String(32))
    mime_type: Mapped[str]
    size_bytes: Mapped[int] = mapped_column(BigInteger)  # the sum of all parts
    status: Mapped[str] = mapped_column(String(16))  # expiry follows from the time
    file_seconds: Mapped[int | None]  # the file's lifetime
    file_id: Mapped[str | None] = mapped_column(String(64))
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime]


class FilePieceRow(TenantOwned, Base):
    __tablename__ = "file_pieces"
    __table_args__ = (
        ForeignKeyConstraint(["tenant_id", "upload_id"], ["file_uploads.tenant_id", "file_uploads.id"]),
        ForeignKeyConstraint(["tenant_id", "file_id"], ["files.tenant_id", "files.id"]),
        Index(None, "tenant_id", "upload_id"),
        Index(None, "tenant_id", "file_id"),
        Index(None, "tenant_id", "size_bytes"),  # quotas need no more of a row
        Index(None, "created_at"),
    )

    tenant_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    upload_id: Mapped[str | None] = mapped_column(String(64))
    file_id: Mapped[str | None] = mapped_column(String(64))
    position: Mapped[int | None]  # in the file
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    stored: Mapped[bool] = mapped_column(server_default=true())  # False: its bytes are still being written
    created_at: Mapped[datetime]


class UploadStatus(StrEnum):
    """States of an upload; parts are accepted while it is pending."""

    PENDING = "pending"
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


RUN = "run"  # a purpose that the API does not have
