"""An inventory of stored bytes, which quotas count and the sweep goes by.

Revision ID: 0021
Revises: 0020
"""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"


def upgrade() -> None:
    op.create_table(
        "adapter_blobs",
        sa.Column("tenant_id", sa.String(64), nullable=False),
        sa.Column("digest", sa.String(255), nullable=False),
        sa.Column("size_bytes", sa.BigInteger, nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", "digest", name="pk_adapter_blobs"),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_adapter_blobs_tenant_id_tenants"),
    )
    op.create_index("ix_adapter_blobs_created_at", "adapter_blobs", ["created_at"])
    _record_adapters()
    op.add_column("file_pieces", sa.Column("stored", sa.Boolean, nullable=False, server_default=sa.true()))
    op.create_index("ix_file_pieces_tenant_id_size_bytes", "file_pieces", ["tenant_id", "size_bytes"])
    op.create_index("ix_file_pieces_created_at", "file_pieces", ["created_at"])


def downgrade() -> None:
    op.drop_index("ix_file_pieces_created_at", "file_pieces")
    op.drop_index("ix_file_pieces_tenant_id_size_bytes", "file_pieces")
    op.drop_column("file_pieces", "stored")
    op.drop_table("adapter_blobs")


def _record_adapters() -> None:
    """Record the digests of all versions. The next sweep removes those whose bytes are gone."""
    columns = ("tenant_id", "digest", "size_bytes", "config", "created_at")
    version = sa.table("adapter_versions", *map(sa.column, columns))
    size = sa.func.max(version.c.size_bytes) + sa.func.max(sa.func.length(version.c.config))
    digests = sa.select(version.c.tenant_id, version.c.digest, size, sa.func.max(version.c.created_at)).group_by(
        version.c.tenant_id, version.c.digest
    )
    blob_columns = ("tenant_id", "digest", "size_bytes", "created_at")
    op.execute(sa.insert(sa.table("adapter_blobs", *map(sa.column, blob_columns))).from_select(blob_columns, digests))
