"""A search over all tenants on Postgres.

Its planner tells frequent words from rare ones only roughly, and between them chooses to go through all adapters, the
newest first. So the newest are looked through at once: a frequent word fills a page there. One that does not is rare
enough for the index of trigrams, which finds all of its adapters before the newest of them are taken.
"""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import ColumnElement, select, tuple_
from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.tables import AdapterRow

_NEWEST = 2000

Position = tuple[datetime, str]


async def newest_with(
    session: AsyncSession, text: str, where: Sequence[ColumnElement[bool]], *, after: Position | None, most: int
) -> Sequence[str]:
    """Ids of the newest adapters that hold `text`, at most so many."""
    made, named = AdapterRow.created_at, AdapterRow.id
    wanted = select(named, made, AdapterRow.search_text).where(*where)
    if after is not None:
        wanted = wanted.where(tuple_(made, named) < tuple_(*after))
    newest = wanted.order_by(made.desc(), named.desc()).limit(_NEWEST).cte("newest").prefix_with("MATERIALIZED")
    found = select(newest.c.id).where(newest.c.search_text.contains(text, autoescape=True))
    ids = (await session.scalars(found.order_by(newest.c.created_at.desc(), newest.c.id.desc()).limit(most))).all()
    if len(ids) == most:
        return ids
    holding = wanted.where(AdapterRow.search_text.contains(text, autoescape=True))
    all_of_them = holding.cte("holding").prefix_with("MATERIALIZED")
    order = (all_of_them.c.created_at.desc(), all_of_them.c.id.desc())
    return (await session.scalars(select(all_of_them.c.id).order_by(*order).limit(most))).all()
