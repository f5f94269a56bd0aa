"""Filters of jobs by their labels (the API's `metadata`), a JSON object of texts."""

from collections.abc import Iterator, Mapping
from typing import Any

from sqlalchemy import Boolean, ColumnElement, String, bindparam
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from loragate.adapter_store.tables.jobs import JobRow

NO_LABELS = "{}"


class _labelled(FunctionElement[bool]):
    """SQL: whether a column's object has this text under that name."""

    type = Boolean()
    inherit_cache = True


@compiles(_labelled, "sqlite")
def _sqlite(element: _labelled, compiler: SQLCompiler, **options: Any) -> str:
    column, name, value = (compiler.process(clause, **options) for clause in element.clauses)
    labels = f"SELECT 1 FROM json_each({column}) AS label"  # noqa: S608 (all three are columns and parameters)
    return f"EXISTS ({labels} WHERE label.key = {name} AND label.value = {value})"


@compiles(_labelled, "postgresql")
def _postgres(element: _labelled, compiler: SQLCompiler, **options: Any) -> str:
    column, name, value = (compiler.process(clause, **options) for clause in element.clauses)
    return f"CAST({column} AS JSON) ->> {name} = {value}"


def labelled(labels: Mapping[str, str] | None) -> Iterator[ColumnElement[bool]]:
    """Yield the conditions for jobs with all of these labels; None selects jobs without any label."""
    if labels is None:
        yield JobRow.labels == NO_LABELS
        return
    for name, value in labels.items():
        yield _labelled(JobRow.labels, bindparam(None, name, String), bindparam(None, value, String))
