"""The signers of versions, and those that a tenant's versions must have.

Revision ID: 0026
Revises: 0025
"""

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"


def upgrade() -> None:
    op.add_column("tenants", sa.Column("signers", sa.Text, nullable=True))
    op.add_column("adapter_versions", sa.Column("signer", sa.String(64), nullable=True))


def downgrade() -> None:
    op.drop_column("adapter_versions", "signer")
    op.drop_column("tenants", "signers")
