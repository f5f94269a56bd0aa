"""A search over all tenants.

Postgres' planner tells frequent words from rare ones only roughly, and between them chooses to go through all adapters,
the newest first; SQLite always asks its index, which for a frequent word finds most adapters there are. So the newest
are looked through at once: a frequent word fills a page there. One that does not is rare enough for the index of
trigrams, which finds all of its adapters before the newest of them are taken.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Select,
    bindparam,
    column,
    func,
    literal_column,
    select,
    table,
    tuple_,
)
from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.adapter import AdapterStatus
from loragate.adapter_store.adapter_filter import AdapterFilter, in_state, tagged
from loragate.adapter_store.tables import AdapterRow, AdapterTagRow

_NEWEST = 2000
_ESCAPE = "/"
# For the transaction's next statement: a plan for what is sought, rather through an index than through every text.
_PLANNED = {"plan_cache_mode": "force_custom_plan", "enable_seqscan": "off"}


@lru_cache(maxsize=128)
def wide_search(
    details: Select[Any],
    status: AdapterStatus | None,
    tags: int,
    *,
    within: bool,
    after: bool,
    newest: int,
    on_sqlite: bool,
) -> Select[Any]:
    """The newest adapters that hold a text and so many tags. Made once: SQLAlchemy takes longer to put it together than
    Postgres to answer it."""
    row = AdapterRow
    most: BindParameter[int] = bindparam("most")
    columns: tuple[Any, ...] = (row.id, row.tenant_id, row.created_at, row.search_text)
    alive = select(*columns).where(*in_state(status))
    if within:
        alive = alive.where(row.tenant_id == bindparam("within"))
    if after:
        alive = alive.where(tuple_(row.created_at, row.id) < tuple_(bindparam("made"), bindparam("named")))
    # These come in order and one by one, and each is asked for its tags only if it holds the text.
    looked_through = _newest_first(alive, row).limit(literal_column(str(newest))).subquery("looked_through")
    near: Select[Any] = select(looked_through.c.id, looked_through.c.created_at).where(_holds(looked_through.c))
    near = near.where(*(_has(looked_through.c, n).scalar_subquery().is_not(None) for n in range(tags)))
    found = _newest_first(near, looked_through.c).limit(most).cte("found").prefix_with("MATERIALIZED")
    # Gone through only where those were too few.
    too_few = select(func.count()).select_from(found).scalar_subquery() < most
    holding = row.id.in_(_indexed(too_few)) if on_sqlite else _holds(row)
    everywhere = alive.where(holding, *(_has(row, n).exists() for n in range(tags)))
    all_of_them = everywhere.cte("all_of_them").prefix_with("MATERIALIZED")
    rest = _newest_first(select(all_of_them.c.id, all_of_them.c.created_at).where(too_few), all_of_them.c)
    ids = select(found.c.id).union_all(select(rest.limit(most).subquery("rest").c.id))
    return _newest_first(details.where(row.id.in_(ids)), row).limit(most)


async def search_widely(
    session: AsyncSession,
    details: Select[Any],
    wanted: AdapterFilter,
    text: str,
    *,
    within: str | None,
    after: tuple[object, str] | None,
    most: int,
) -> Sequence[Any]:
    """What `details` selects of the newest adapters, all tenants' or one's, that are `wanted` and hold `text`."""
    on_sqlite = session.get_bind().dialect.name == "sqlite"
    if not on_sqlite:
        await session.execute(_PLANNING)
    shape = {"within": within is not None, "after": after is not None, "newest": _NEWEST, "on_sqlite": on_sqlite}
    statement = wide_search(details, wanted.status, len(wanted.tags), **shape)
    quoted = text.replace('"', '""')
    values = {"pattern": f"%{_escaped(text)}%", "match": f'"{quoted}"', "most": most, "within": within}
    values |= {f"tag_{number}": tag for number, tag in enumerate(wanted.tags)}
    values |= dict(zip(("made", "named"), after or (), strict=False))
    rows: Sequence[Any] = (await session.execute(statement, values)).all()
    return rows


_PLANNING = select(*(func.set_config(name, value, True) for name, value in _PLANNED.items()))


def _newest_first(query: Select[Any], columns: Any) -> Select[Any]:
    return query.order_by(columns.created_at.desc(), columns.id.desc())


def _holds(columns: Any) -> ColumnElement[bool]:
    held: ColumnElement[bool] = columns.search_text.like(bindparam("pattern"), escape=_ESCAPE)
    return held


def _indexed(where: ColumnElement[bool]) -> Select[Any]:
    """The adapters that hold it, by SQLite's index of trigrams, which is not asked unless `where` is true."""
    texts = table("adapter_search", column("rowid"), column("text"))
    rows = table("adapter_search_rows", column("number"), column("adapter_id"))
    numbers = select(texts.c.rowid).where(where, texts.c.text.op("MATCH")(bindparam("match")))
    return select(rows.c.adapter_id).where(rows.c.number.in_(numbers))


def _has(adapter: Any, number: int) -> Select[Any]:
    return select(AdapterTagRow.tag).where(tagged(adapter, AdapterTagRow, bindparam(f"tag_{number}")))


def _escaped(text: str) -> str:
    for special in (_ESCAPE, "%", "_"):
        text = text.replace(special, _ESCAPE + special)
    return text
