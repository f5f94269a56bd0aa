"""The sizes of adapters' replica sets, on which gateways agree.

Revision ID: 0029
Revises: 0028
"""

import sqlalchemy as sa
from alembic import op

revision = "0029"
down_revision = "0028"


def upgrade() -> None:
    op.create_table(
        "replica_sets",
        sa.Column("process", sa.String(64), nullable=False),
        sa.Column("sizes", sa.Text, nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("process", name="pk_replica_sets"),
    )


def downgrade() -> None:
    op.drop_table("replica_sets")
