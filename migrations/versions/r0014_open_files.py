"""Files that lines are appended to until they are closed.

Revision ID: 0014
Revises: 0013
"""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    op.add_column("files", sa.Column("open_until", sa.DateTime(timezone=True), nullable=True))
    op.add_column("files", sa.Column("format", sa.String(32), nullable=True))


def downgrade() -> None:
    """What is open is closed as it is."""
    op.drop_column("files", "format")
    op.drop_column("files", "open_until")
