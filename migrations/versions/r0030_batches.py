"""Batches, and the results of their lines.

Revision ID: 0030
Revises: 0029
"""

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0029"

_TIME = sa.DateTime(timezone=True)
_TIMES = ("in_progress_at", "cancelling_at", "finalizing_at", "finished_at")


def upgrade() -> None:
    op.create_table(
        "batches",
        sa.Column("tenant_id", sa.String(64), nullable=False),
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("key_id", sa.String(64), nullable=False),
        sa.Column("endpoint", sa.String(32), nullable=False),
        sa.Column("input_file", sa.String(64), nullable=False),
        sa.Column("completion_window", sa.String(8), nullable=False),
        sa.Column("output_seconds", sa.Integer, nullable=True),
        sa.Column("labels", sa.Text, nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("ending", sa.String(16), nullable=True),
        sa.Column("errors", sa.Text, nullable=True),
        sa.Column("output_file", sa.String(64), nullable=True),
        sa.Column("error_file", sa.String(64), nullable=True),
        *(sa.Column(name, sa.Integer, nullable=False) for name in ("total", "completed", "failed")),
        *(
            sa.Column(name, sa.BigInteger, nullable=False)
            for name in ("prompt_tokens", "completion_tokens", "cached_tokens")
        ),
        sa.Column("waits_for", sa.Text, nullable=True),
        sa.Column("waits_until", _TIME, nullable=True),
        sa.Column("worker", sa.String(64), nullable=True),
        sa.Column("held_until", _TIME, nullable=True),
        sa.Column("served_at", _TIME, nullable=True),
        sa.Column("created_at", _TIME, nullable=False),
        sa.Column("expires_at", _TIME, nullable=False),
        *(sa.Column(name, _TIME, nullable=True) for name in _TIMES),
        sa.PrimaryKeyConstraint("tenant_id", "id", name="pk_batches"),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_batches_tenant_id_tenants"),
    )
    op.create_index("ix_batches_tenant_id_created_at_id", "batches", ["tenant_id", "created_at", "id"])
    op.create_index("ix_batches_status_created_at", "batches", ["status", "created_at"])
    op.create_table(
        "batch_lines",
        sa.Column("tenant_id", sa.String(64), nullable=False),
        sa.Column("batch_id", sa.String(64), nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("failed", sa.Boolean, nullable=False),
        sa.Column("result", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", "batch_id", "number", name="pk_batch_lines"),
        sa.ForeignKeyConstraint(
            ["tenant_id", "batch_id"],
            ["batches.tenant_id", "batches.id"],
            name="fk_batch_lines_tenant_id_batch_id_batches",
        ),
    )


def downgrade() -> None:
    op.drop_table("batch_lines")
    op.drop_table("batches")
