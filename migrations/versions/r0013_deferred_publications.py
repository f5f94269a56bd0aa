"""Publications that wait for an engine.

Revision ID: 0013
Revises: 0012
"""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"

_VERSION = ["tenant_id", "adapter_id", "version"]


def upgrade() -> None:
    op.create_table(
        "deferred_publications",
        sa.Column("tenant_id", sa.String(64), nullable=False),
        sa.Column("adapter_id", sa.String(64), nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("alias", sa.String(64), nullable=False),
        sa.Column("said", sa.Text, nullable=False),
        sa.Column("own_tokens", sa.Text, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("due_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint(*_VERSION, name="pk_deferred_publications"),
        sa.ForeignKeyConstraint(
            _VERSION,
            [f"adapter_versions.{column}" for column in _VERSION],
            name="fk_deferred_publications_version",
        ),
    )
    op.create_index("ix_deferred_publications_due_at", "deferred_publications", ["due_at"])


def downgrade() -> None:
    """What waits is given up by the sweep of the version before."""
    op.drop_table("deferred_publications")
