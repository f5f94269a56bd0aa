"""Answers to requests with an Idempotency-Key.

Revision ID: 0005
Revises: 0004
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.create_table(
        "replies",
        sa.Column("tenant_id", sa.String(64), nullable=False),
        sa.Column("key_hash", sa.LargeBinary, nullable=False),
        sa.Column("fingerprint", sa.LargeBinary, nullable=False),
        sa.Column("token", sa.String(64), nullable=False),
        sa.Column("claimed_until", sa.DateTime(timezone=True), nullable=False),
        sa.Column("status", sa.Integer, nullable=True),
        sa.Column("sealed", sa.LargeBinary, nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", "key_hash", name="pk_replies"),
    )
    op.create_index("ix_replies_created_at", "replies", ["created_at"])


def downgrade() -> None:
    op.drop_table("replies")
