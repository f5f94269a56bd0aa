"""The database in a backup: a file of JSON lines for each table, which any supported database can load.

The first line of a file has the columns with their kinds; each other line is one row. A backup of an older schema is
loaded into that schema, whose tables are reflected, before it is upgraded.
"""

import base64
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from datetime import datetime
from functools import cache
from typing import Any, BinaryIO

import orjson
from sqlalchemy import (
    Column,
    Connection,
    DateTime,
    LargeBinary,
    MetaData,
    Table,
    TypeDecorator,
    bindparam,
    event,
    insert,
    select,
    update,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from loragate.adapter_store.errors import Invalid
from loragate.adapter_store.tables.base import Base, UtcDateTime

_ROWS = 1000  # read or written at once
_BYTES, _TIME, _PLAIN = "bytes", "time", "plain"


@cache
def current_tables() -> tuple[Table, ...]:
    """Return the tables of the current schema, each after those that it refers to, with columns as they are stored."""
    plain = MetaData()
    for table in Base.metadata.sorted_tables:
        for column in table.to_metadata(plain).columns:
            if isinstance(column.type, TypeDecorator) and not isinstance(column.type, UtcDateTime):
                column.type = column.type.impl_instance
    return tuple(plain.sorted_tables)


async def tables_of(connection: AsyncConnection, names: Iterable[str]) -> list[Table]:
    """Return these tables of a schema that may be older, each after those that it refers to.

    Raises Invalid for a table that the database does not have.
    """
    return await connection.run_sync(_reflect, set(names))


async def dump(connection: AsyncConnection, table: Table) -> AsyncIterator[bytes]:
    """Yield the file of a table, with its rows as this transaction sees them."""
    kinds = [_kind(column) for column in table.columns]
    yield orjson.dumps([[column.name, kind] for column, kind in zip(table.columns, kinds, strict=True)]) + b"\n"
    rows = await connection.stream(select(table).execution_options(yield_per=_ROWS))
    async for batch in rows.partitions(_ROWS):
        lines = ([_encoded(kind, value) for kind, value in zip(kinds, row, strict=True)] for row in batch)
        yield b"".join(orjson.dumps(line) + b"\n" for line in lines)


async def load(connection: AsyncConnection, table: Table, file: BinaryIO) -> int:
    """Insert the rows of a file; return their number. Raises Invalid."""
    lines = iter(file)
    columns = _columns(table, next(lines, b""))
    later = [column for column in table.columns if any(key.column.table is table for key in column.foreign_keys)]
    count = 0
    changes: list[dict[str, Any]] = []
    for rows in _batches(lines, columns):
        changes += [_set_aside(table, row, later) for row in rows if any(row[column.name] for column in later)]
        await connection.execute(insert(table), rows)
        count += len(rows)
    for change in changes:  # rows that refer to other rows of their table, which are there now
        keys = [column == bindparam(f"key_{column.name}") for column in table.primary_key.columns]
        values: dict[str, Any] = {column.name: bindparam(f"new_{column.name}") for column in later}
        await connection.execute(update(table).where(*keys).values(values), change)
    return count


def _reflect(connection: Connection, names: set[str]) -> list[Table]:
    found = MetaData()
    event.listen(found, "column_reflect", _use_utc)
    # Schemas may have more: SQLite's index for searches, which triggers fill.
    found.reflect(connection, only=lambda name, _: name in names)
    if missing := names - set(found.tables):
        raise Invalid(f"The backup has tables that its schema does not have: {', '.join(sorted(missing))}.")
    return [table for table in found.sorted_tables if table.name in names]


def _use_utc(inspector: object, table: Table, column: dict[str, Any]) -> None:
    if isinstance(column["type"], DateTime):
        column["type"] = UtcDateTime()


def _kind(column: Column[Any]) -> str:
    if isinstance(column.type, UtcDateTime):
        return _TIME
    return _BYTES if isinstance(column.type, LargeBinary) else _PLAIN


def _encoded(kind: str, value: Any) -> Any:
    if value is None or kind == _PLAIN:
        return value
    return value.isoformat() if kind == _TIME else base64.b64encode(value).decode()


def _decoded(kind: str, value: Any) -> Any:
    if value is None or kind == _PLAIN:
        return value
    return datetime.fromisoformat(value) if kind == _TIME else base64.b64decode(value, validate=True)


def _columns(table: Table, header: bytes) -> list[tuple[str, str]]:
    expected = {(column.name, _kind(column)) for column in table.columns}
    columns = [(str(name), str(kind)) for name, kind in orjson.loads(header)] if header else []
    if set(columns) != expected:
        raise Invalid(f"The backup's table {table.name} has other columns than its schema.")
    return columns


def _batches(lines: Iterator[bytes], columns: Sequence[tuple[str, str]]) -> Iterator[list[dict[str, Any]]]:
    batch: list[dict[str, Any]] = []
    for line in lines:
        values = zip(columns, orjson.loads(line), strict=True)
        batch.append({name: _decoded(kind, value) for (name, kind), value in values})
        if len(batch) == _ROWS:
            yield batch
            batch = []
    if batch:
        yield batch


def _set_aside(table: Table, row: dict[str, Any], later: Sequence[Column[Any]]) -> dict[str, Any]:
    """Clear the row's references to its own table; return the change that sets them."""
    change = {f"key_{column.name}": row[column.name] for column in table.primary_key.columns}
    for column in later:
        change[f"new_{column.name}"], row[column.name] = row[column.name], None
    return change
