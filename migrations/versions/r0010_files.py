"""Tenants' files, uploads of them in parts, and the pieces that both are made of.

Revision ID: 0010
Revises: 0009
"""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"

_TABLES = ("file_pieces", "file_uploads", "files")


def upgrade() -> None:
    _create(
        "files",
        *_named(),
        _time("created_at"),
        _time("expires_at", nullable=True),
        _time("deleted_at", nullable=True),
        _of_tenant("files"),
    )
    op.create_index("ix_files_tenant_id_created_at_id", "files", ["tenant_id", "created_at", "id"])
    _create(
        "file_uploads",
        *_named(),
        sa.Column("mime_type", sa.String(255), nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("file_seconds", sa.Integer, nullable=True),
        sa.Column("file_id", sa.String(64), nullable=True),
        _time("created_at"),
        _time("expires_at"),
        _of_tenant("file_uploads"),
        _part_of("file_uploads", "file_id", "files"),
    )
    op.create_index("ix_file_uploads_tenant_id_status", "file_uploads", ["tenant_id", "status"])
    _create(
        "file_pieces",
        sa.Column("upload_id", sa.String(64), nullable=True),
        sa.Column("file_id", sa.String(64), nullable=True),
        sa.Column("position", sa.Integer, nullable=True),
        sa.Column("size_bytes", sa.BigInteger, nullable=False),
        _time("created_at"),
        _part_of("file_pieces", "upload_id", "file_uploads"),
        _part_of("file_pieces", "file_id", "files"),
    )
    for column in ("upload_id", "file_id"):
        op.create_index(f"ix_file_pieces_tenant_id_{column}", "file_pieces", ["tenant_id", column])


def downgrade() -> None:
    for table in _TABLES:
        op.drop_table(table)


def _create(table: str, *parts: Any) -> None:
    op.create_table(
        table,
        sa.Column("tenant_id", sa.String(64), nullable=False),
        sa.Column("id", sa.String(64), nullable=False),
        *parts,
        sa.PrimaryKeyConstraint("tenant_id", "id", name=f"pk_{table}"),
    )


def _named() -> tuple[sa.Column[Any], ...]:
    return (
        sa.Column("filename", sa.String(255), nullable=False),
        sa.Column("purpose", sa.String(32), nullable=False),
        sa.Column("size_bytes", sa.BigInteger, nullable=False),
    )


def _time(name: str, *, nullable: bool = False) -> sa.Column[Any]:
    return sa.Column(name, sa.DateTime(timezone=True), nullable=nullable)


def _of_tenant(table: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name=f"fk_{table}_tenant_id_tenants")


def _part_of(table: str, column: str, other: str) -> sa.ForeignKeyConstraint:
    name = f"fk_{table}_tenant_id_{column}_{other}"
    return sa.ForeignKeyConstraint(["tenant_id", column], [f"{other}.tenant_id", f"{other}.id"], name=name)
