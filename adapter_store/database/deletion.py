"""Deletion of many rows, some in each transaction, so that other writers wait for these only."""

from sqlalchemy import ColumnElement, Table, delete, select, tuple_
from sqlalchemy.ext.asyncio import AsyncSession


async def delete_some(session: AsyncSession, table: Table, condition: ColumnElement[bool], limit: int) -> int:
    """Delete up to `limit` rows of a table; return their number."""
    key = tuple(table.primary_key.columns)
    chosen = select(*key).where(condition).limit(limit)
    deleted = await session.execute(delete(table).where(tuple_(*key).in_(chosen)).returning(*key))
    return len(deleted.all())
