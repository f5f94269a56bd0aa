"""The adapter version that a fine-tuning job goes on from, and how jobs are found by id, by time and by result.

Revision ID: 0012
Revises: 0011
"""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"

_JOBS = "fine_tuning_jobs"
_COLUMNS: dict[str, Any] = {
    "start_adapter_id": sa.String(64),
    "start_name": sa.String(64),
    "start_version": sa.Integer(),
    "start_digest": sa.String(255),
}
_INDEXES = {
    "ix_fine_tuning_jobs_tenant_id_fine_tuned_model": ["tenant_id", "fine_tuned_model"],
    "ix_fine_tuning_jobs_created_at_id": ["created_at", "id"],
    "uq_fine_tuning_jobs_id": ["id"],
}


def upgrade() -> None:
    for name, kind in _COLUMNS.items():
        op.add_column(_JOBS, sa.Column(name, kind, nullable=True))
    for name, columns in _INDEXES.items():
        op.create_index(name, _JOBS, columns, unique=name.startswith("uq_"))


def downgrade() -> None:
    for name in _INDEXES:
        op.drop_index(name, _JOBS)
    for name in _COLUMNS:
        op.drop_column(_JOBS, name)
