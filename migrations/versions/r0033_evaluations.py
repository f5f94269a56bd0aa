"""How well the results of fine-tuning jobs classify: their evaluation on validation data.

Revision ID: 0033
Revises: 0032
"""

import sqlalchemy as sa
from alembic import op

revision = "0033"
down_revision = "0032"


def upgrade() -> None:
    op.add_column("fine_tuning_jobs", sa.Column("evaluation", sa.Text, nullable=True))


def downgrade() -> None:
    op.drop_column("fine_tuning_jobs", "evaluation")
