"""Requests that were turned away, by tenant and hour.

Revision ID: 0015
Revises: 0014
"""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    op.create_table(
        "turned_away",
        sa.Column("tenant_id", sa.String(64), nullable=False),
        sa.Column("start", sa.DateTime(timezone=True), nullable=False),
        sa.Column("reason", sa.String(16), nullable=False),
        sa.Column("requests", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", "start", "reason", name="pk_turned_away"),
    )


def downgrade() -> None:
    op.drop_table("turned_away")
