"""What tenants, keys and adapters may use.

Revision ID: 0006
Revises: 0005
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

_LIMITED = ("tenants", "api_keys", "adapters")


def upgrade() -> None:
    for table in _LIMITED:
        op.add_column(table, sa.Column("limits", sa.Text, nullable=True))


def downgrade() -> None:
    for table in _LIMITED:
        op.drop_column(table, "limits")
