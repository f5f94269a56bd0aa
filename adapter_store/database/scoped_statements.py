"""Statements on bare tables, built once and used by all tenants; the ORM adds no filter, so they name the tenant.

`scoped` checks a statement when it is made: each use of a tenant table in it, and in each of its subqueries, must be
limited to TENANT_PARAM.
A tenant's session runs no other statement on bare tables.
"""

from collections.abc import Iterator
from typing import Any, TypeVar

from sqlalchemy import (
    BinaryExpression,
    BindParameter,
    BooleanClauseList,
    ClauseElement,
    Column,
    CompoundSelect,
    Executable,
    FromClause,
    Grouping,
    Join,
    Select,
    SelectBase,
    String,
    Table,
    True_,
    bindparam,
)
from sqlalchemy.sql.operators import and_, eq, is_
from sqlalchemy.sql.visitors import ExternallyTraversible, iterate

S = TypeVar("S", bound=Select[Any])

TENANT_PARAM: BindParameter[str] = bindparam("tenant_id", type_=String)
"""The tenant whose rows such a statement reads; its value is `tenant_of` the session."""

_SCOPED = "loragate_scoped"


class UnscopedStatement(RuntimeError):
    """A bug in a repository: a statement would reach beyond its scope."""


def scoped(statement: S) -> S:
    """Mark a statement for tenants' sessions. Raise UnscopedStatement if it is not limited to TENANT_PARAM."""
    _check(statement, frozenset())
    return statement.execution_options(**{_SCOPED: True})


def reject_unscoped(statement: Executable) -> None:
    """Raise UnscopedStatement for a statement on tenants' tables that was not made with `scoped`."""
    if statement.get_execution_options().get(_SCOPED):
        return
    assert isinstance(statement, ClauseElement)
    if any(isinstance(part, Table) and _is_owned(part) for part in iterate(statement)):
        raise UnscopedStatement("statements on bare tables must be made with `scoped`")


def _tables_of(query: SelectBase) -> set[FromClause]:
    """Return the tenants' tables that the query itself reads."""
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
    """Check a query; `around` are the tables of its enclosing queries, which it may refer to."""
    if isinstance(query, CompoundSelect):
        for each in query.selects:
            _check(each, around)
        return
    assert isinstance(query, Select)
    tables, held = _tables_of(query), set(_held_by(query))
    inner = list[SelectBase]()
    parts: list[ExternallyTraversible] = list(query.get_children())
    while parts:
        part = parts.pop()
        if isinstance(part, SelectBase):
            inner.append(part)
        else:
            parts.extend(part.get_children())
    if missing := tables - held - around:
        names = ", ".join(sorted(str(each) for each in missing))
        raise UnscopedStatement(f"{names} would be read for all tenants")
    for each in inner:
        _check(each, around | tables)


def _held_by(query: Select[Any]) -> Iterator[FromClause]:
    """Yield the tables with a condition `table.tenant_id = TENANT_PARAM` that all rows of the query fulfil."""
    selected = {id(each) for each in query.selected_columns}
    for part in query.get_children():
        if id(part) not in selected:
            yield from _held_in(part)


def _held_in(condition: object) -> Iterator[FromClause]:
    if isinstance(condition, Grouping):
        yield from _held_in(condition.element)
    elif isinstance(condition, BooleanClauseList) and condition.operator is and_:
        for each in condition.clauses:
            yield from _held_in(each)
    elif isinstance(condition, BinaryExpression) and condition.operator is is_ and isinstance(condition.right, True_):
        yield from _held_in(condition.left)
    elif isinstance(condition, BinaryExpression) and condition.operator is eq:
        left, right = condition.left, condition.right
        is_own = isinstance(right, BindParameter) and right.key == TENANT_PARAM.key
        if is_own and isinstance(left, Column) and left.name == "tenant_id":
            yield left.table
