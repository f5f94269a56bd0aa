"""Pages of adapters: lists, filters by tag, and searches, of one tenant or of all.

A page is one statement, built once for each shape of query: SQLAlchemy takes longer to build one than the database to
execute it. The values are parameters, and nothing in a statement makes its best plan depend on them, as far as
Postgres can see, so that it plans each statement once, too.

Lists and tags come in the order of an index. A search has no such order. It scans the newest adapters first: a frequent
word fills a page there. Otherwise the number of matches decides: a word that will fill the page soon is scanned for
further, and a rarer one is looked up in the trigram index, which finds all matches before the newest are taken.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import orjson
from sqlalchemy import (
    CTE,
    BindParameter,
    ColumnElement,
    Integer,
    Select,
    SelectBase,
    String,
    Text,
    and_,
    bindparam,
    case,
    column,
    func,
    literal,
    literal_column,
    select,
    table,
    true,
    tuple_,
    union_all,
)
from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.adapters.adapter import Adapter, AdapterStatus
from loragate.adapter_store.adapters.filter import AdapterFilter, in_state
from loragate.adapter_store.adapters.rows import adapters_of, summary_columns
from loragate.adapter_store.adapters.search_text import has_trigrams, sought
from loragate.adapter_store.database.keyset import position_of
from loragate.adapter_store.database.page import MAX_LIMIT, Page, checked_limit, cut_page
from loragate.adapter_store.database.scoped_statements import TENANT_PARAM, scoped
from loragate.adapter_store.database.tenant_session import tenant_of
from loragate.adapter_store.names import could_be_id
from loragate.adapter_store.tables.adapters import AdapterRow, AdapterTagRow

_NOWHERE = '"\x02\x02\x02"'  # names and descriptions have no control characters
_ADAPTERS, _TAGS = AdapterRow.__table__, AdapterTagRow.__table__
_SEEN, _SHOWN = _ADAPTERS.alias("seen").c, _ADAPTERS.alias("shown").c
_LIMIT: BindParameter[int] = bindparam("most", type_=Integer)
_AFTER: BindParameter[str] = bindparam("after", type_=String)
_PATTERN: BindParameter[str] = bindparam("pattern", type_=Text)


@dataclass(frozen=True)
class Walk:
    """A search scans the `newest` adapters first, and `more` if it finds at least `often` matches: at that rate they
    fill a page."""

    newest: int
    more: int
    often: int


@dataclass(frozen=True)
class _Shape:
    """The shape of a query, which determines its statement."""

    of_one_tenant: bool
    status: AdapterStatus | None
    search: bool
    by_trigrams: bool  # the trigram index can find the text
    tags: int
    after: bool
    on_sqlite: bool
    walk: Walk


async def adapter_page(
    session: AsyncSession, wanted: AdapterFilter, *, within: str | None = None, after: str | None, limit: int
) -> Page[Adapter]:
    """Return a page, newest first, of the session's scope or of one tenant `within` it. Raise Invalid for a cursor
    of another scope."""
    checked_limit(limit)
    owner, text = within or tenant_of(session), sought(wanted.search)
    on_sqlite = session.get_bind().dialect.name == "sqlite"
    shape = _Shape(
        of_one_tenant=owner is not None,
        status=wanted.status,
        search=text is not None,
        by_trigrams=text is not None and has_trigrams(text),
        tags=len(wanted.tags),
        after=after is not None,
        on_sqlite=on_sqlite,
        walk=_walk(owner is not None, on_sqlite),
    )
    values = {
        TENANT_PARAM.key: owner,
        "most": limit + 1,
        "after": after,
        **_text_values(text),
        **_tag_values(wanted.tags),
    }
    rows: Sequence[Any] = ()
    if after is None or could_be_id(after):
        rows = (await session.execute(_page(shape), values)).all()
    if after is not None and not rows:
        await position_of(session, AdapterRow, after)
    return cut_page(adapters_of(rows), limit)


def _walk(of_one_tenant: bool, on_sqlite: bool) -> Walk:
    """Return how far to scan: the index has no tenants, so it is slower for one tenant; SQLite copies what it scans."""
    if on_sqlite:
        return Walk(2000, 2000, often=0)
    return Walk(2000, 6000, often=24) if of_one_tenant else Walk(1000, 6000, often=20)


def _text_values(text: str | None) -> dict[str, str]:
    """Return the parameters of a search text, in the forms of both databases."""
    if text is None:
        return {}
    escaped = text
    for special in ("\\", "%", "_"):
        escaped = escaped.replace(special, "\\" + special)
    quoted = text.replace('"', '""')
    return {"text": text, "pattern": f"%{escaped}%", "match": f'"{quoted}"'}


def _tag_values(tags: tuple[str, ...]) -> dict[str, str]:
    """Return the parameters of tags, for the table of tags and for the list in the adapter's row."""
    listed = {f"listed_{number}": orjson.dumps(tag).decode() for number, tag in enumerate(tags)}
    return {f"tag_{number}": tag for number, tag in enumerate(tags)} | listed


@lru_cache(maxsize=256)
def _page(shape: _Shape) -> Select[Any]:
    if shape.by_trigrams:
        found = _searched(shape).subquery("found").c
        summary = select(*summary_columns(_SHOWN)).where(_SHOWN.id == found.id, *_owned(shape, _SHOWN))
        statement = _newest_first(summary, found).limit(_hidden(_LIMIT))
    else:
        page = _listed(shape).subquery("page").c
        statement = _newest_first(select(*summary_columns(page)), page).limit(_LIMIT)
    return scoped(statement) if shape.of_one_tenant else statement


def _listed(shape: _Shape) -> Select[Any]:
    """Build a list in the order of an index: of the adapters, or of the first tag."""
    adapter, tags = _ADAPTERS.c, [_TAGS.alias(f"of_tag_{number}") for number in range(shape.tags)]
    made, named = (tags[0].c.created_at, tags[0].c.adapter_id) if tags else (adapter.created_at, adapter.id)
    query = select(*summary_columns(adapter, created_at=made)).where(*in_state(adapter, shape.status))
    query = query.where(*_owned(shape, adapter), *_past(shape, made, named))
    for number, row in enumerate(tags):
        owner = TENANT_PARAM if shape.of_one_tenant else adapter.tenant_id
        tagged = (row.c.tenant_id == owner, row.c.adapter_id == adapter.id, row.c.tag == bindparam(f"tag_{number}"))
        query = query.join(row, and_(*tagged))
    if shape.search:
        query = query.where(_holds(shape, adapter.search_text))
    return query.order_by(made.desc(), named.desc()).limit(_literal(MAX_LIMIT + 1))


def _searched(shape: _Shape) -> SelectBase:
    """Build a search for ids among the newest adapters; if it finds too few, among more, or among all. The other
    columns are read afterwards."""
    adapter = _ADAPTERS.c
    alive: Select[Any] = select(adapter.id, adapter.created_at, adapter.tags, adapter.search_text)
    alive = alive.where(*in_state(adapter, shape.status))
    alive = _newest_first(alive.where(*_owned(shape, adapter), *_past(shape, adapter.created_at, adapter.id)), adapter)
    near = _scanned(shape, alive.limit(_hidden(_literal(shape.walk.newest))), "near")
    found, too_few = [select(near)], _count(near) < _LIMIT
    if shape.walk.more > shape.walk.newest:
        often = _looked_at_once("often", _count(near).between(_literal(shape.walk.often), _LIMIT - 1))
        far = _scanned(shape, alive.limit(_hidden(_literal(shape.walk.more))), "far", often)
        found = [found[0].where(~often), select(far).where(often)]
        too_few = and_(too_few, _count(far) < _LIMIT)
    if shape.of_one_tenant:
        others = alive.with_only_columns(adapter.id).order_by(None).offset(_literal(shape.walk.newest))
        too_few = and_(too_few, others.limit(_literal(1)).exists())
    few = _looked_at_once("few", too_few)
    # The offset keeps the planner from scanning all in order, to avoid the sort.
    everywhere = _indexed(shape, few).offset(_literal(0)).subquery("everywhere")
    rest = _newest_first(select(everywhere).where(few), everywhere.c).limit(_hidden(_LIMIT)).subquery("rest")
    return union_all(*(walked.where(~few) for walked in found), select(rest))


def _scanned(shape: _Shape, adapters: Select[Any], name: str, *only_if: ColumnElement[bool]) -> CTE:
    """Scan adapters for the text, in order and one by one, until there are enough."""
    among = adapters.subquery(f"{name}_ones").c
    found = select(among.id, among.created_at).where(_holds(shape, among.search_text), *_has_tags(shape, among))
    return _newest_first(found.where(*only_if), among).limit(_hidden(_LIMIT)).cte(name).prefix_with("MATERIALIZED")


def _count(found: CTE) -> ColumnElement[int]:
    return select(func.count()).select_from(found).scalar_subquery()


def _looked_at_once(name: str, condition: ColumnElement[bool]) -> ColumnElement[bool]:
    checked = select(condition.label(name)).cte(f"is_{name}").prefix_with("MATERIALIZED")
    return select(checked.c[name]).scalar_subquery()


def _indexed(shape: _Shape, only_if: ColumnElement[bool]) -> Select[Any]:
    """Find all adapters with the text, unordered, through the trigram index."""
    adapter = _ADAPTERS.c
    query = select(adapter.id, adapter.created_at).where(*in_state(adapter, shape.status), *_has_tags(shape, adapter))
    query = query.where(*_past(shape, adapter.created_at, adapter.id))
    if shape.on_sqlite:
        return query.where(*_owned(shape, adapter), adapter.id.in_(_matching(only_if)))
    # IS TRUE hides the tenant from the planner, which would assume a small one, and the subquery hides the text,
    # whose frequency it could only guess.
    pattern = select(_PATTERN).scalar_subquery()
    return query.where(*(own.is_(true()) for own in _owned(shape, adapter)), adapter.search_text.like(pattern))


def _matching(only_if: ColumnElement[bool]) -> Select[Any]:
    """Search SQLite's index. SQLite runs this before any other condition, and a frequent word takes long, so where the
    result is not needed, it searches for a text that does not occur."""
    texts = table("adapter_search", column("rowid"), column("text"))
    rows = table("adapter_search_rows", column("number"), column("adapter_id"))
    sought_text = case((only_if, bindparam("match", type_=Text)), else_=literal(_NOWHERE))
    numbers = select(texts.c.rowid).where(texts.c.text.op("MATCH")(sought_text))
    return select(rows.c.adapter_id).where(rows.c.number.in_(numbers))


def _owned(shape: _Shape, adapter: Any) -> tuple[ColumnElement[bool], ...]:
    return (adapter.tenant_id == TENANT_PARAM,) if shape.of_one_tenant else ()


def _past(shape: _Shape, made: Any, named: Any) -> tuple[ColumnElement[bool], ...]:
    """Return the condition of the cursor."""
    if not shape.after:
        return ()
    seen = select(_SEEN.created_at).where(_SEEN.id == _AFTER, *_owned(shape, _SEEN))
    return (tuple_(made, named) < tuple_(seen.scalar_subquery(), _AFTER),)


def _has_tags(shape: _Shape, adapter: Any) -> tuple[ColumnElement[bool], ...]:
    return tuple(_found_in(shape, adapter.tags, f"listed_{number}") for number in range(shape.tags))


def _holds(shape: _Shape, text: ColumnElement[Any]) -> ColumnElement[bool]:
    """Return the condition that an adapter has the text."""
    return _found_in(shape, text, "text") if shape.on_sqlite else text.like(_PATTERN)


def _found_in(shape: _Shape, text: ColumnElement[Any], part: str) -> ColumnElement[bool]:
    """Return an exact substring match, without an index."""
    position = func.instr if shape.on_sqlite else func.strpos
    found: ColumnElement[bool] = position(text, bindparam(part, type_=Text)) > 0
    return found


def _newest_first(query: Select[Any], columns: Any) -> Select[Any]:
    return query.order_by(columns.created_at.desc(), columns.id.desc())


def _literal(number: int) -> ColumnElement[int]:
    """Return a literal, not a parameter, because the plan depends on it."""
    return literal_column(str(number), Integer)


def _hidden(limit: ColumnElement[int]) -> ColumnElement[int]:
    """Hide a limit from the planner, which then assumes a tenth of all rows, and scans them in an index's order. With a
    visible limit above the size of most tenants it would sort all rows of a tenant, and prefer to plan again for each
    limit."""
    return select(limit).scalar_subquery()
