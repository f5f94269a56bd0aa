"""The usage ledger and its sums.

Revision ID: 0002
Revises: 0001
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_TOKENS = ("prompt_tokens", "completion_tokens", "cached_tokens")


def upgrade() -> None:
    op.create_table(
        "usage_records",
        sa.Column("tenant_id", sa.String(64), nullable=False),
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("request_id", sa.String(255), nullable=False),
        sa.Column("key_id", sa.String(64), nullable=False),
        sa.Column("endpoint", sa.String(64), nullable=False),
        sa.Column("base_model", sa.String(255), nullable=False),
        sa.Column("adapter", sa.String(64), nullable=True),
        sa.Column("adapter_version", sa.Integer, nullable=True),
        sa.Column("adapter_digest", sa.String(255), nullable=True),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in _TOKENS),
        sa.Column("first_token_ms", sa.BigInteger, nullable=True),
        sa.Column("duration_ms", sa.BigInteger, nullable=False),
        sa.Column("outcome", sa.String(16), nullable=False),
        sa.Column("amount", sa.BigInteger, nullable=True),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", "id", name="pk_usage_records"),
    )
    op.create_index("ix_usage_records_started_at", "usage_records", ["started_at"])
    op.create_table(
        "usage_sums",
        sa.Column("tenant_id", sa.String(64), nullable=False),
        sa.Column("width", sa.String(4), nullable=False),
        sa.Column("start", sa.DateTime(timezone=True), nullable=False),
        sa.Column("key_id", sa.String(64), nullable=False),
        sa.Column("endpoint", sa.String(64), nullable=False),
        sa.Column("base_model", sa.String(255), nullable=False),
        sa.Column("adapter", sa.String(64), nullable=False),
        sa.Column("adapter_version", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("requests", sa.BigInteger, nullable=False),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in _TOKENS),
        sa.Column("amount", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint(
            "tenant_id",
            "width",
            "start",
            "key_id",
            "endpoint",
            "base_model",
            "adapter",
            "adapter_version",
            name="pk_usage_sums",
        ),
    )
    op.create_index("ix_usage_sums_width_start", "usage_sums", ["width", "start"])


def downgrade() -> None:
    op.drop_table("usage_sums")
    op.drop_table("usage_records")
