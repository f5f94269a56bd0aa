"""Tables and columns named by the terms of the API.

Revision ID: 0018
Revises: 0017
"""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"

_REPLIES = ("tenant_id", "key_hash", "fingerprint", "token", "claimed_until", "status", "sealed", "created_at")
_REJECTIONS = ("tenant_id", "start", "reason", "requests")


def upgrade() -> None:
    _create_replies("idempotency_replies")
    _move("replies", "idempotency_replies", _REPLIES)
    _create_rejections("rejected_requests")
    _move("turned_away", "rejected_requests", _REJECTIONS)
    _replace_value("rejected_requests", "reason", "over_limit", "rate_limited")
    op.execute(sa.text("ALTER TABLE usage_records RENAME COLUMN first_token_ms TO ttft_ms"))
    _rename_placement("keep", "placement", {"device": "pinned", "disk": "prefetched"})


def downgrade() -> None:
    _rename_placement("placement", "keep", {"pinned": "device", "prefetched": "disk"})
    op.execute(sa.text("ALTER TABLE usage_records RENAME COLUMN ttft_ms TO first_token_ms"))
    _create_rejections("turned_away")
    _move("rejected_requests", "turned_away", _REJECTIONS)
    _replace_value("turned_away", "reason", "rate_limited", "over_limit")
    _create_replies("replies")
    _move("idempotency_replies", "replies", _REPLIES)


def _create_replies(name: str) -> None:
    op.create_table(
        name,
        sa.Column("tenant_id", sa.String(64), nullable=False),
        sa.Column("key_hash", sa.LargeBinary, nullable=False),
        sa.Column("fingerprint", sa.LargeBinary, nullable=False),
        sa.Column("token", sa.String(64), nullable=False),
        sa.Column("claimed_until", sa.DateTime(timezone=True), nullable=False),
        sa.Column("status", sa.Integer, nullable=True),
        sa.Column("sealed", sa.LargeBinary, nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", "key_hash", name=f"pk_{name}"),
    )
    op.create_index(f"ix_{name}_created_at", name, ["created_at"])


def _create_rejections(name: str) -> None:
    op.create_table(
        name,
        sa.Column("tenant_id", sa.String(64), nullable=False),
        sa.Column("start", sa.DateTime(timezone=True), nullable=False),
        sa.Column("reason", sa.String(16), nullable=False),
        sa.Column("requests", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", "start", "reason", name=f"pk_{name}"),
    )


def _move(old: str, new: str, columns: tuple[str, ...]) -> None:
    """Copy the rows and drop the old table, so that constraints and indexes have the new table's name everywhere."""
    source, target = (sa.table(name, *map(sa.column, columns)) for name in (old, new))
    op.execute(sa.insert(target).from_select(columns, sa.select(*source.c)))
    op.drop_table(old)


def _replace_value(table: str, column: str, old: str, new: str) -> None:
    rows = sa.table(table, sa.column(column))
    op.execute(sa.update(rows).where(rows.c[column] == old).values({column: new}))


def _rename_placement(old: str, new: str, values: dict[str, str]) -> None:
    op.drop_index(f"ix_adapters_{old}", "adapters")
    op.execute(sa.text(f"ALTER TABLE adapters RENAME COLUMN {old} TO {new}"))
    for before, after in values.items():
        _replace_value("adapters", new, before, after)
    placed = sa.text(f"{new} IS NOT NULL")
    op.create_index(f"ix_adapters_{new}", "adapters", [new], sqlite_where=placed, postgresql_where=placed)
