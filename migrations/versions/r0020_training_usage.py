"""Usage of training: tokens and time, by job and in the ledger's sums.

Revision ID: 0020
Revises: 0019
"""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"

_COLUMNS = (
    ("fine_tuning_jobs", "metered_tokens"),
    ("fine_tuning_jobs", "metered_ms"),
    ("usage_records", "training_tokens"),
    ("usage_sums", "training_tokens"),
    ("usage_sums", "training_ms"),
)


def upgrade() -> None:
    for table, column in _COLUMNS:
        op.add_column(table, sa.Column(column, sa.BigInteger, nullable=False, server_default="0"))


def downgrade() -> None:
    for table, column in reversed(_COLUMNS):
        op.drop_column(table, column)
