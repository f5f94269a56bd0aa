"""The inventory of adapters' bytes; that of files' bytes is `file_pieces`."""

from datetime import datetime

from sqlalchemy import BigInteger, ForeignKeyConstraint, Index, String
from sqlalchemy.orm import Mapped, mapped_column

from loragate.adapter_store.tables.base import Base, TenantOwned


class AdapterBlobRow(TenantOwned, Base):
    """The two files of one digest. The row is there before the bytes are, and until they are removed."""

    __tablename__ = "adapter_blobs"
    __table_args__ = (ForeignKeyConstraint(["tenant_id"], ["tenants.id"]), Index(None, "created_at"))

    tenant_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    digest: Mapped[str] = mapped_column(primary_key=True)
    size_bytes: Mapped[int] = mapped_column(BigInteger)  # of both files
    created_at: Mapped[datetime]  # when the digest was last uploaded
