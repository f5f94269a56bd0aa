"""Imports of adapters from elsewhere.

Revision ID: 0009
Revises: 0008
"""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    op.create_table(
        "adapter_imports",
        sa.Column("tenant_id", sa.String(64), nullable=False),
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("source", sa.String(1024), nullable=False),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("alias", sa.String(64), nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("bytes_done", sa.BigInteger, nullable=False),
        sa.Column("bytes_total", sa.BigInteger, nullable=True),
        sa.Column("version", sa.Integer, nullable=True),
        sa.Column("error_code", sa.String(64), nullable=True),
        sa.Column("error_message", sa.Text, nullable=True),
        sa.Column("error_param", sa.String(255), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", "id", name="pk_adapter_imports"),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_adapter_imports_tenant_id_tenants"),
    )
    op.create_index("ix_adapter_imports_tenant_id_created_at_id", "adapter_imports", ["tenant_id", "created_at", "id"])


def downgrade() -> None:
    op.drop_table("adapter_imports")
