"""An index for the list of all tenants' batches.

Revision ID: 0035
Revises: 0034
"""

from alembic import op

revision = "0035"
down_revision = "0034"


def upgrade() -> None:
    op.create_index("ix_batches_created_at_id", "batches", ["created_at", "id"])


def downgrade() -> None:
    op.drop_index("ix_batches_created_at_id", "batches")
