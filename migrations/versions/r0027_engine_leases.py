"""The registry of engines.

Revision ID: 0027
Revises: 0026
"""

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"


def upgrade() -> None:
    op.create_table(
        "engine_leases",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("holder", sa.String(64), nullable=False),
        sa.Column("target", sa.String, nullable=False),
        sa.Column("machine", sa.String, nullable=True),
        sa.Column("certificate_name", sa.String, nullable=True),
        sa.Column("base_digest", sa.String, nullable=False),
        sa.Column("adapter_slots", sa.Integer, nullable=False),
        sa.Column("running", sa.Integer, nullable=False),
        sa.Column("waiting", sa.Integer, nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_engine_leases"),
    )


def downgrade() -> None:
    op.drop_table("engine_leases")
