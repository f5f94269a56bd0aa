"""Statements about bare tables, made once and used by all tenants. The ORM adds nothing to them: they name the tenant.

`own` looks at one when it is made: each use of a tenant's table in it, in each of its subqueries, has to be held to OWN
there. A tenant's session runs no other statement about bare tables.
"""

from collections.abc import Iterator
from typing import Any, TypeVar

from sqlalchemy import (
    BinaryExpression,
    BindParameter,
    ClauseElement,
    Column,
    CompoundSelect,
    Executable,
    FromClause,
    Join,
    Select,
    SelectBase,
    String,
    Table,
    bindparam,
)
from sqlalchemy.sql.operators import eq
from sqlalchemy.sql.visitors import ExternallyTraversible, iterate

S = TypeVar("S", bound=Select[Any])

OWN: BindParameter[str] = bindparam("tenant_id", type_=String)
"""Whose rows such a statement is about; its value is `tenant_of` the session."""

_MADE = "loragate_own"


class UnscopedStatement(RuntimeError):
    """A bug in a repository: it was about to reach beyond its scope."""


def own(statement: S) -> S:
    """For tenants' sessions. Raises UnscopedStatement when it does not keep to OWN."""
    _check(statement, frozenset())
    return statement.execution_options(**{_MADE: True})


def refuse_bare(statement: Executable) -> None:
    """Raises UnscopedStatement for one about tenants' tables that was not made with `own`."""
    if statement.get_execution_options().get(_MADE):
        return
    assert isinstance(statement, ClauseElement)
    if any(isinstance(part, Table) and _is_owned(part) for part in iterate(statement)):
        raise UnscopedStatement("a statement about bare tables is made with `own`")


def _tables_of(query: SelectBase) -> set[FromClause]:
    """Tenants' tables that it reads by itself."""
    return {each for part in query.get_children() for each in _joined(part) if _is_owned(each)}


def _joined(part: object) -> Iterator[FromClause]:
    if isinstance(part, Join):
        yield from _joined(part.left)
        yield from _joined(part.right)
    elif isinstance(part, FromClause):
        yield part


def _is_owned(part: FromClause) -> bool:
    return "tenant_id" in part.c and not isinstance(getattr(part, "element", None), SelectBase)


def _check(query: SelectBase, around: frozenset[FromClause]) -> None:
    """`around` it are the tables of the queries that it is a part of, which it may refer to."""
    if isinstance(query, CompoundSelect):
        for each in query.selects:
            _check(each, around)
        return
    tables = _tables_of(query)
    held, inner = set[FromClause](), list[SelectBase]()
    parts: list[ExternallyTraversible] = list(query.get_children())
    while parts:
        part = parts.pop()
        if isinstance(part, SelectBase):
            inner.append(part)
            continue
        held |= _held_by(part)
        parts.extend(part.get_children())
    if missing := tables - held - around:
        names = ", ".join(sorted(str(each) for each in missing))
        raise UnscopedStatement(f"{names} would be read for all tenants")
    for each in inner:
        _check(each, around | tables)


def _held_by(part: ExternallyTraversible) -> set[FromClause]:
    """What `table.tenant_id = OWN` is about."""
    if not isinstance(part, BinaryExpression) or part.operator is not eq:
        return set()
    left, right = part.left, part.right
    is_own = isinstance(right, BindParameter) and right.key == OWN.key
    return {left.table} if is_own and isinstance(left, Column) and left.name == "tenant_id" else set()
