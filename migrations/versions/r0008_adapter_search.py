"""What tenants say about adapters, the search for it, and which adapters operators want on engines.

Revision ID: 0008
Revises: 0007
"""

import re
from collections.abc import Callable

import sqlalchemy as sa
from alembic import op
from sqlalchemy.exc import DBAPIError

from loragate.adapter_store.errors import SchemaMismatch

revision = "0008"
down_revision = "0007"

_LACKING = (
    "The database lacks the extension pg_trgm, which searches need, and this role may not add it. Have somebody who "
    "may run `CREATE EXTENSION pg_trgm` in this database (it comes with Postgres, on some systems in a package "
    "postgresql-contrib), then start again."
)

# SQLite searches by FTS5. Its rows need numbers that stay the same, which rows of `adapters` have not.
_ON_SQLITE = (
    "CREATE TABLE adapter_search_rows (number INTEGER PRIMARY KEY, adapter_id VARCHAR(64) NOT NULL UNIQUE)",
    "CREATE VIRTUAL TABLE adapter_search USING fts5(text, tokenize='trigram')",
    "INSERT INTO adapter_search_rows (adapter_id) SELECT id FROM adapters",
    """
    INSERT INTO adapter_search (rowid, text)
    SELECT number, search_text FROM adapter_search_rows JOIN adapters ON id = adapter_id
    """,
    """
    CREATE TRIGGER adapter_search_adds AFTER INSERT ON adapters BEGIN
        INSERT INTO adapter_search_rows (adapter_id) VALUES (new.id);
        INSERT INTO adapter_search (rowid, text)
        SELECT number, new.search_text FROM adapter_search_rows WHERE adapter_id = new.id;
    END
    """,
    """
    CREATE TRIGGER adapter_search_follows AFTER UPDATE OF search_text ON adapters BEGIN
        UPDATE adapter_search SET text = new.search_text
        WHERE rowid = (SELECT number FROM adapter_search_rows WHERE adapter_id = new.id);
    END
    """,
    """
    CREATE TRIGGER adapter_search_forgets AFTER DELETE ON adapters BEGIN
        DELETE FROM adapter_search WHERE rowid = (SELECT number FROM adapter_search_rows WHERE adapter_id = old.id);
        DELETE FROM adapter_search_rows WHERE adapter_id = old.id;
    END
    """,
)
_TRIGGERS = ("adapter_search_adds", "adapter_search_follows", "adapter_search_forgets")
_INDEX_ON_POSTGRES = """
CREATE INDEX ix_adapters_search_text ON adapters USING gin (search_text gin_trgm_ops) WITH (fastupdate = off)
"""


def upgrade() -> None:
    op.add_column("adapters", sa.Column("tags", sa.Text, nullable=True))
    for column in ("description", "search_text"):
        op.add_column("adapters", sa.Column(column, sa.Text, nullable=False, server_default=sa.text("''")))
    _fill()
    op.add_column("adapters", sa.Column("keep", sa.String(16), nullable=True))
    kept = sa.text("keep IS NOT NULL")
    op.create_index("ix_adapters_keep", "adapters", ["keep"], sqlite_where=kept, postgresql_where=kept)
    op.create_index("ix_adapters_created_at_id", "adapters", ["created_at", "id"])
    op.create_index("uq_adapters_id", "adapters", ["id"], unique=True)
    op.create_table(
        "adapter_tags",
        sa.Column("tenant_id", sa.String(64), nullable=False),
        sa.Column("adapter_id", sa.String(64), nullable=False),
        sa.Column("tag", sa.String(64), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", "adapter_id", "tag", name="pk_adapter_tags"),
        sa.ForeignKeyConstraint(
            ["tenant_id", "adapter_id"],
            ["adapters.tenant_id", "adapters.id"],
            name="fk_adapter_tags_tenant_id_adapter_id_adapters",
        ),
    )
    for columns in (["tag", "created_at", "adapter_id"], ["tenant_id", "tag", "created_at", "adapter_id"]):
        op.create_index(f"ix_adapter_tags_{'_'.join(columns)}", "adapter_tags", columns)
    _by_dialect(_search_on_postgres, _search_on_sqlite)


def downgrade() -> None:
    _by_dialect(lambda: op.drop_index("ix_adapters_search_text", "adapters"), _forget_on_sqlite)
    op.drop_table("adapter_tags")
    op.drop_index("uq_adapters_id", "adapters")
    op.drop_index("ix_adapters_created_at_id", "adapters")
    op.drop_index("ix_adapters_keep", "adapters")
    for column in ("keep", "search_text", "description", "tags"):
        op.drop_column("adapters", column)


def _by_dialect(postgres: Callable[[], None], sqlite: Callable[[], None]) -> None:
    (postgres if op.get_bind().dialect.name == "postgresql" else sqlite)()


def _search_on_postgres() -> None:
    """The extension is trusted: whoever may create things in this database may add it."""
    connection = op.get_bind()
    try:
        with connection.begin_nested():
            connection.execute(sa.text("CREATE EXTENSION IF NOT EXISTS pg_trgm"))
    except DBAPIError as error:
        raise SchemaMismatch(_LACKING) from error
    op.execute(_INDEX_ON_POSTGRES)


def _search_on_sqlite() -> None:
    for statement in _ON_SQLITE:
        op.execute(statement)


def _forget_on_sqlite() -> None:
    for trigger in _TRIGGERS:
        op.execute(f"DROP TRIGGER {trigger}")
    op.drop_table("adapter_search")
    op.drop_table("adapter_search_rows")


def _fill() -> None:
    """Adapters had nothing but their names."""
    connection = op.get_bind()
    adapters = sa.table("adapters", sa.column("id"), sa.column("name"), sa.column("search_text"))
    found = connection.execute(sa.select(adapters.c.id, adapters.c.name)).all()
    change = sa.update(adapters).where(adapters.c.id == sa.bindparam("which")).values(search_text=sa.bindparam("text"))
    if found:
        connection.execute(change, [{"which": row.id, "text": _text(row.name)} for row in found])


def _text(name: str) -> str:
    """As `loragate.adapter_store.adapters.search_text` made it at this revision, of a name of ASCII alone."""
    said = f"{name}\n".lower()
    return said + "".join(f"\n {word}" for word in dict.fromkeys(re.findall(r"[^\W_]+", said)))
