"""SQLite through aiosqlite, with one change of threads for each statement.

aiosqlite runs each call of a cursor in the connection's thread: to make it, to execute, to fetch and to close. Most
statements take less time than a change of threads does, which on a busy machine waits for a core. This driver begins a
transaction, executes its first statement and fetches the first rows in one call, and does not wait for the end of a
transaction that only read.
"""

import sqlite3
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeVar

import aiosqlite

_FETCHED = 256  # rows, with the statement's execution

T = TypeVar("T")
Parameters = Iterable[Any]


class SqliteCursor:
    """A cursor that has the first rows of a statement when it has been executed."""

    def __init__(self, connection: "SqliteConnection") -> None:
        self._connection = connection
        self._cursor = connection.new_cursor()
        self._rows: list[Any] = []
        self._is_complete = True  # there are no rows but those in `_rows`
        self._is_executing = False
        self.arraysize = 1

    async def __aenter__(self) -> "SqliteCursor":
        return self

    @property
    def description(self) -> Any:
        return self._cursor.description

    @property
    def rowcount(self) -> int:
        return self._cursor.rowcount

    @property
    def lastrowid(self) -> int | None:
        return self._cursor.lastrowid

    async def execute(self, sql: str, parameters: Parameters = ()) -> "SqliteCursor":
        """Execute a statement. Raise sqlite3.Error."""
        return await self._run(self._cursor.execute, sql, parameters)

    async def executemany(self, sql: str, parameters: Iterable[Parameters]) -> "SqliteCursor":
        """Execute a statement once for each of the parameters. Raise sqlite3.Error."""
        return await self._run(self._cursor.executemany, sql, parameters)

    async def fetchall(self) -> list[Any]:
        """Return the rows that are left. Raise sqlite3.Error."""
        rows, self._rows = self._rows, []
        if not self._is_complete:
            rows += await self._connection.run(self._cursor.fetchall)
            self._is_complete = True
        return rows

    async def fetchmany(self, size: int | None = None) -> list[Any]:
        """Return up to `size` of the rows that are left. Raise sqlite3.Error."""
        size = self.arraysize if size is None else size
        if not self._rows and not self._is_complete:
            self._rows = await self._connection.run(partial(self._cursor.fetchmany, max(size, _FETCHED)))
            self._is_complete = not self._rows
        rows, self._rows = self._rows[:size], self._rows[size:]
        return rows

    async def fetchone(self) -> Any:
        """Return the next row, or None. Raise sqlite3.Error."""
        rows = await self.fetchmany(1)
        return rows[0] if rows else None

    async def close(self) -> None:
        """Close the cursor; after a cancellation wait until the statement has ended."""
        if self._is_executing:
            await self._connection.run(self._cursor.close)
        else:
            self._cursor.close()

    async def _run(self, execute: Callable[..., Any], sql: str, parameters: Iterable[Any]) -> "SqliteCursor":
        self._is_executing = True
        begin = self._connection.take_begin()
        self._rows = await self._connection.run(partial(_first_rows, self._cursor, begin, execute, sql, parameters))
        self._is_complete, self._is_executing = len(self._rows) < _FETCHED, False
        return self


class SqliteConnection(aiosqlite.Connection):
    """A connection with a thread of its own."""

    _begin: str | None = None  # of a transaction without a statement so far
    _is_reading = False

    def begin(self, statement: str, *, is_reading: bool) -> None:
        """Begin a transaction with the next statement, which raises what prevents it."""
        self._begin, self._is_reading = statement, is_reading

    def take_begin(self) -> str | None:
        """Return the statement that must come before the next one."""
        begin, self._begin = self._begin, None
        return begin

    async def commit(self) -> None:
        """Commit the transaction. One that only read ends soon; later calls wait for it. Raise sqlite3.Error."""
        if self.take_begin() is not None:
            return
        if self._is_reading:
            self._tx.put_nowait((None, self._conn.commit))
        else:
            await super().commit()

    async def rollback(self) -> None:
        """Roll the transaction back. Raise sqlite3.Error."""
        self.take_begin()
        await super().rollback()

    def cursor(self) -> Any:
        """Return a cursor, which needs no call in the thread."""
        return SqliteCursor(self)

    def new_cursor(self) -> sqlite3.Cursor:
        """Return a cursor of the underlying connection, which must allow its use in several threads."""
        return self._conn.cursor()

    async def run(self, call: Callable[[], T]) -> T:
        """Return the result of a call in the thread."""
        return await self._execute(call)  # type: ignore[no-any-return, no-untyped-call]


def connect(path: str, **options: Any) -> SqliteConnection:
    """Return a connection, which opens when it is awaited."""
    connection = SqliteConnection(partial(sqlite3.connect, path, **options), iter_chunk_size=_FETCHED)
    connection._thread.daemon = True
    return connection


def _first_rows(
    cursor: sqlite3.Cursor, begin: str | None, execute: Callable[..., Any], sql: str, parameters: Iterable[Any]
) -> list[Any]:
    if begin is not None:
        cursor.execute(begin)
    execute(sql, parameters)
    return [] if cursor.description is None else cursor.fetchmany(_FETCHED)
