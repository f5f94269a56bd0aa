"""What versions with a head for labels are for: the task, the labels and the problem type.

Revision ID: 0032
Revises: 0031
"""

import sqlalchemy as sa
from alembic import op

revision = "0032"
down_revision = "0031"


def upgrade() -> None:
    op.add_column("adapter_versions", sa.Column("classifier", sa.Text, nullable=True))


def downgrade() -> None:
    op.drop_column("adapter_versions", "classifier")
