"""The audit log, which the database itself keeps from being changed.

Revision ID: 0004
Revises: 0003
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

_REFUSE_ON_SQLITE = """
CREATE TRIGGER audit_log_refuses_{event} BEFORE {event} ON audit_log
BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END
"""
_REFUSE_ON_POSTGRES = """
CREATE FUNCTION audit_log_refuses() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'the audit log is append-only'; END $$
"""
_TRIGGER_ON_POSTGRES = """
CREATE TRIGGER audit_log_refuses BEFORE UPDATE OR DELETE OR TRUNCATE ON audit_log
FOR EACH STATEMENT EXECUTE FUNCTION audit_log_refuses()
"""


def upgrade() -> None:
    op.create_table(
        "audit_log",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("tenant_id", sa.String(64), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("action", sa.String(64), nullable=False),
        sa.Column("target", sa.String(255), nullable=False),
        sa.Column("before", sa.Text, nullable=True),
        sa.Column("after", sa.Text, nullable=True),
        sa.Column("request_id", sa.String(128), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_audit_log"),
    )
    op.create_index("ix_audit_log_created_at_id", "audit_log", ["created_at", "id"])
    op.create_index("ix_audit_log_tenant_id_created_at_id", "audit_log", ["tenant_id", "created_at", "id"])
    if op.get_bind().dialect.name == "postgresql":
        op.execute(_REFUSE_ON_POSTGRES)
        op.execute(_TRIGGER_ON_POSTGRES)
    else:
        for event in ("UPDATE", "DELETE"):
            op.execute(_REFUSE_ON_SQLITE.format(event=event))


def downgrade() -> None:
    op.drop_table("audit_log")
    if op.get_bind().dialect.name == "postgresql":
        op.execute("DROP FUNCTION audit_log_refuses()")
