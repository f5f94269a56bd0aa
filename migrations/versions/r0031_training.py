"""The training API: sessions, runs and their commands, checkpoints, samplers and their samples.

Revision ID: 0031
Revises: 0030
"""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0031"
down_revision = "0030"

_TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    _table(
        "training_sessions",
        *_texts(64, "tenant_id", "id", "key_id", "sdk_version"),
        sa.Column("display_name", sa.String(255)),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("tags", "user_metadata")),
        *_times("created_at", "seen_at"),
        sa.Column("finished_at", _TIME),
        sa.Column("finish_reason", sa.String(16)),
        key=("tenant_id", "id"),
        references=(("tenant_id",), "tenants", ("id",)),
    )
    _index("training_sessions", "tenant_id", "created_at", "id")
    _index("training_sessions", "finished_at", "seen_at")
    _table(
        "training_runs",
        *_texts(64, "tenant_id", "session_id", "key_id"),
        *_texts(128, "id"),
        *_texts(16, "status"),
        sa.Column("rank", sa.Integer),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("settings", "user_metadata")),
        sa.Column("next_seq", sa.BigInteger, nullable=False),
        sa.Column("gradients_failed", sa.Boolean, nullable=False),
        sa.Column("steps", sa.Integer, nullable=False),
        sa.Column("trained_tokens", sa.BigInteger, nullable=False),
        sa.Column("snapshot_seq", sa.BigInteger),
        sa.Column("snapshot_file", sa.String(64)),
        sa.Column("worker", sa.String(64)),
        *(sa.Column(name, _TIME) for name in ("held_until", "ended_at")),
        *_times("created_at", "used_at"),
        key=("tenant_id", "id"),
        references=(("tenant_id", "session_id"), "training_sessions", ("tenant_id", "id")),
    )
    _index("training_runs", "tenant_id", "created_at", "id")
    _index("training_runs", "tenant_id", "session_id")
    _index("training_runs", "status", "held_until")
    _table(
        "training_commands",
        *_texts(64, "tenant_id"),
        *_texts(128, "run_id"),
        sa.Column("seq", sa.BigInteger, nullable=False),
        *_texts(32, "kind"),
        sa.Column("digest", sa.LargeBinary, nullable=False),
        sa.Column("payload", sa.LargeBinary),
        sa.Column("loss", sa.Double),
        sa.Column("tokens", sa.Integer),
        *_outcome(),
        key=("tenant_id", "run_id", "seq"),
        references=(("tenant_id", "run_id"), "training_runs", ("tenant_id", "id")),
    )
    _table(
        "training_checkpoints",
        *_texts(64, "tenant_id"),
        *_texts(128, "run_id", "name"),
        *_texts(16, "kind"),
        *(sa.Column(name, sa.String(64)) for name in ("state_file", "adapter")),
        sa.Column("version", sa.Integer),
        *_texts(255, "digest"),
        sa.Column("size_bytes", sa.BigInteger, nullable=False),
        sa.Column("user_metadata", sa.Text, nullable=False),
        *_times("created_at"),
        sa.Column("expires_at", _TIME),
        key=("tenant_id", "run_id", "kind", "name"),
        references=(("tenant_id", "run_id"), "training_runs", ("tenant_id", "id")),
    )
    _index("training_checkpoints", "tenant_id", "digest")
    _index("training_checkpoints", "expires_at")
    _table(
        "training_samplers",
        *_texts(64, "tenant_id", "session_id"),
        *_texts(128, "id"),
        *(sa.Column(name, sa.String(255)) for name in ("model_path", "adapter", "digest")),
        sa.Column("version", sa.Integer),
        sa.Column("size_bytes", sa.BigInteger, nullable=False),
        *_times("created_at"),
        key=("tenant_id", "id"),
        references=(("tenant_id", "session_id"), "training_sessions", ("tenant_id", "id")),
    )
    _index("training_samplers", "tenant_id", "digest")
    _table(
        "training_samples",
        *_texts(64, "tenant_id", "worker"),
        *_texts(128, "sampler_id"),
        sa.Column("seq", sa.BigInteger, nullable=False),
        sa.Column("digest", sa.LargeBinary, nullable=False),
        *_outcome(),
        *_times("held_until"),
        key=("tenant_id", "sampler_id", "seq"),
        references=(("tenant_id", "sampler_id"), "training_samplers", ("tenant_id", "id")),
    )


def downgrade() -> None:
    for kind in ("samples", "samplers", "checkpoints", "commands", "runs", "sessions"):
        op.drop_table(f"training_{kind}")


def _table(
    name: str,
    *columns: sa.Column[Any],
    key: Sequence[str],
    references: tuple[Sequence[str], str, Sequence[str]],
) -> None:
    ours, table, theirs = references
    op.create_table(
        name,
        *columns,
        sa.PrimaryKeyConstraint(*key, name=f"pk_{name}"),
        sa.ForeignKeyConstraint(
            list(ours), [f"{table}.{each}" for each in theirs], name=f"fk_{name}_{'_'.join(ours)}_{table}"
        ),
    )


def _index(table: str, *columns: str) -> None:
    op.create_index(f"ix_{table}_{'_'.join(columns)}", table, list(columns))


def _texts(length: int, *names: str) -> list[sa.Column[Any]]:
    return [sa.Column(name, sa.String(length), nullable=False) for name in names]


def _times(*names: str) -> list[sa.Column[Any]]:
    return [sa.Column(name, _TIME, nullable=False) for name in names]


def _outcome() -> list[sa.Column[Any]]:
    return [
        *_texts(8, "status"),
        sa.Column("result", sa.LargeBinary),
        sa.Column("error", sa.Text),
        sa.Column("category", sa.String(8)),
        *_times("created_at"),
        sa.Column("finished_at", _TIME),
    ]
