"""Inserts that say what happens to a row that is there already."""

from typing import Any

from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncSession

Upsert = postgresql.Insert | sqlite.Insert


def upsert(session: AsyncSession, target: Any) -> Upsert:
    """Return an INSERT into a table, or that of a row's class, in the dialect of the session's database."""
    is_postgres = session.get_bind().dialect.name == "postgresql"
    return postgresql.insert(target) if is_postgres else sqlite.insert(target)
