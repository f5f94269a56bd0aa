"""The engine of each request in the ledger.

Revision ID: 0028
Revises: 0027
"""

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"


def upgrade() -> None:
    op.add_column("usage_records", sa.Column("engine_id", sa.String(64), nullable=True))


def downgrade() -> None:
    op.drop_column("usage_records", "engine_id")
