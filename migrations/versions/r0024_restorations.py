"""Restorations, and holds of the sweep.

Revision ID: 0024
Revises: 0023
"""

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"


def upgrade() -> None:
    op.create_table(
        "sweep_holds",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_sweep_holds"),
    )
    op.create_table(
        "restorations",
        sa.Column("epoch", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("backup_id", sa.String(64), nullable=False),
        sa.Column("backup_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("restored_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("version_floor", sa.Integer, nullable=False),
        sa.Column("confirmed_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("epoch", name="pk_restorations"),
    )


def downgrade() -> None:
    op.drop_table("restorations")
    op.drop_table("sweep_holds")
