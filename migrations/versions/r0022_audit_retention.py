"""Old events may leave the audit log, up to a moment that is recorded first; all others stay append-only.

Revision ID: 0022
Revises: 0021
"""

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"

_ON_SQLITE = """
CREATE TRIGGER audit_log_refuses_DELETE BEFORE DELETE ON audit_log
WHEN OLD.created_at >= coalesce((SELECT max(purged_before) FROM audit_purges), '')
BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END
"""
_BEFORE_ON_SQLITE = """
CREATE TRIGGER audit_log_refuses_DELETE BEFORE DELETE ON audit_log
BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END
"""
_ON_POSTGRES = (
    "DROP TRIGGER audit_log_refuses ON audit_log",
    """
    CREATE TRIGGER audit_log_refuses BEFORE UPDATE OR TRUNCATE ON audit_log
    FOR EACH STATEMENT EXECUTE FUNCTION audit_log_refuses()
    """,
    """
    CREATE FUNCTION audit_log_refuses_delete() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN
        IF OLD.created_at >= coalesce((SELECT max(purged_before) FROM audit_purges), '-infinity') THEN
            RAISE EXCEPTION 'the audit log is append-only';
        END IF;
        RETURN OLD;
    END $$
    """,
    """
    CREATE TRIGGER audit_log_refuses_delete BEFORE DELETE ON audit_log
    FOR EACH ROW EXECUTE FUNCTION audit_log_refuses_delete()
    """,
)
_BEFORE_ON_POSTGRES = (
    "DROP TRIGGER audit_log_refuses_delete ON audit_log",
    "DROP FUNCTION audit_log_refuses_delete()",
    "DROP TRIGGER audit_log_refuses ON audit_log",
    """
    CREATE TRIGGER audit_log_refuses BEFORE UPDATE OR DELETE OR TRUNCATE ON audit_log
    FOR EACH STATEMENT EXECUTE FUNCTION audit_log_refuses()
    """,
)


def upgrade() -> None:
    op.create_table(
        "audit_purges",
        sa.Column("purged_before", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("purged_before", name="pk_audit_purges"),
    )
    _replace_triggers(_ON_SQLITE, _ON_POSTGRES)


def downgrade() -> None:
    _replace_triggers(_BEFORE_ON_SQLITE, _BEFORE_ON_POSTGRES)
    op.drop_table("audit_purges")


def _replace_triggers(on_sqlite: str, on_postgres: tuple[str, ...]) -> None:
    if op.get_bind().dialect.name == "postgresql":
        for statement in on_postgres:
            op.execute(statement)
    else:
        op.execute("DROP TRIGGER audit_log_refuses_DELETE")
        op.execute(on_sqlite)
