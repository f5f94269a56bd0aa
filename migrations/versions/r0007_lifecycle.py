"""States, lineage and lifecycle of adapters: what a version came from, how an alias goes back, what each arm served.

Revision ID: 0007
Revises: 0006
"""

from datetime import UTC, datetime

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"

_ARMS = "ix_usage_records_tenant_id_adapter_started_at"


def upgrade() -> None:
    for name in ("published_at", "disabled_at"):
        op.add_column("adapters", sa.Column(name, sa.DateTime(timezone=True), nullable=True))
    op.execute("UPDATE adapters SET published_at = created_at")
    _lineage()
    op.add_column("adapter_aliases", sa.Column("previous", sa.Text, nullable=True))
    op.add_column("usage_records", sa.Column("adapter_alias", sa.String(64), nullable=True))
    op.create_index(_ARMS, "usage_records", ["tenant_id", "adapter", "started_at"])


def downgrade() -> None:
    """What is not ready is nothing that the schema before knows: it goes."""
    op.drop_index(_ARMS, "usage_records")
    op.drop_column("usage_records", "adapter_alias")
    op.drop_column("adapter_aliases", "previous")
    _delete_for_good()
    op.execute("UPDATE adapter_versions SET status = 'ready'")
    op.execute("UPDATE adapters SET deleted_at = created_at WHERE published_at IS NULL AND deleted_at IS NULL")
    for name in ("reason", "notes", "source", "dataset_digest", "parent_version", "evaluation"):
        op.drop_column("adapter_versions", name)
    for name in ("published_at", "disabled_at"):
        op.drop_column("adapters", name)


def _delete_for_good() -> None:
    """What was never ready, or is damaged: so long ago that nobody, after another upgrade, can restore it as ready."""
    version = sa.table("adapter_versions", sa.column("status"), sa.column("deleted_at", sa.DateTime(timezone=True)))
    unfit = version.c.status.not_in(("ready", "disabled"))
    op.get_bind().execute(sa.update(version).where(unfit).values(deleted_at=datetime(1970, 1, 1, tzinfo=UTC)))


def _lineage() -> None:
    for column in (
        sa.Column("reason", sa.Text, nullable=True),
        sa.Column("notes", sa.Text, nullable=True),
        sa.Column("source", sa.String(255), nullable=False, server_default="upload"),
        sa.Column("dataset_digest", sa.String(255), nullable=True),
        sa.Column("parent_version", sa.Integer, nullable=True),
        sa.Column("evaluation", sa.Text, nullable=True),
    ):
        op.add_column("adapter_versions", column)
