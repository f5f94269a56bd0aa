"""The ids of the secrets that the hashes of keys were made with.

Revision ID: 0025
Revises: 0024
"""

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"
compatible_from = "0023"  # the oldest revision whose code may run on this schema; later ones change it if they must

_TABLES = ("api_keys", "admin_keys")


def upgrade() -> None:
    for table in _TABLES:
        op.add_column(table, sa.Column("secret_id", sa.String(16), nullable=True))


def downgrade() -> None:
    for table in reversed(_TABLES):
        op.drop_column(table, "secret_id")
