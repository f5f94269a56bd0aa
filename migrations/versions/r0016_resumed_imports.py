"""Imports that go on when their process has died. Those that run already do not: who asked for them, and whether with
a token, was not kept.

Revision ID: 0016
Revises: 0015
"""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"

_IMPORTS = "adapter_imports"
_RUNNING = sa.text("status IN ('queued', 'fetching', 'checking')")


def upgrade() -> None:
    op.add_column(_IMPORTS, sa.Column("adapter_id", sa.String(64), nullable=True))
    op.add_column(_IMPORTS, sa.Column("actor", sa.Text, nullable=True))
    op.add_column(_IMPORTS, sa.Column("resumable", sa.Boolean, nullable=False, server_default=sa.false()))
    op.add_column(_IMPORTS, sa.Column("attempts", sa.Integer, nullable=False, server_default=sa.text("0")))
    op.create_index(
        "ix_adapter_imports_updated_at",
        _IMPORTS,
        ["updated_at"],
        sqlite_where=_RUNNING,
        postgresql_where=_RUNNING,
    )


def downgrade() -> None:
    op.drop_index("ix_adapter_imports_updated_at", _IMPORTS)
    for name in ("attempts", "resumable", "actor", "adapter_id"):
        op.drop_column(_IMPORTS, name)
