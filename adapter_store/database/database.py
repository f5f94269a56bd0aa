"""One engine and pool per process; sessions for reading and for writing.

Reading sessions see one consistent snapshot (SQLite's deferred transaction in WAL mode; REPEATABLE READ,
read-only, on Postgres). Writing sessions never lose an update that they read first: SQLite begins them with
BEGIN IMMEDIATE; on Postgres a tenant's writers lock their tenant's row, and the operator's writers an advisory lock.
No session takes a connection before its first statement.
"""

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from sqlalchemy import URL, Connection, Engine, event, text
from sqlalchemy.exc import InvalidatePoolError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import Session, SessionTransaction
from sqlalchemy.pool import ConnectionPoolEntry, PoolProxiedConnection
from sqlalchemy.util import await_only
from sqlalchemy.util.concurrency import in_greenlet

from loragate.adapter_store.database.error_mapping import database_faults
from loragate.adapter_store.database.sqlite_driver import SqliteConnection, connect
from loragate.adapter_store.database.tenant_session import (
    TENANT,
    WRITE,
    TenantSession,
    guard,
)
from loragate.adapter_store.database.urls import driver_url

BUSY_TIMEOUT = 10.0  # seconds that a SQLite writer waits for the lock
_RETRY_SECONDS = 0.02
_CONNECT_TIMEOUT = 5.0  # seconds, Postgres
_POOL_TIMEOUT = 10.0  # seconds to wait for a free connection
_TRUSTED_SECONDS = 1.0  # after this time idle, a Postgres connection is pinged before use
_IDLE_SINCE = "loragate_idle_since"
_KEPT, _MORE = 5, 10  # connections of one process: permanent ones, and additional ones under load
MAX_CONNECTIONS = _KEPT + _MORE
_RELEASE_PAGES = "PRAGMA incremental_vacuum(1000)"  # 4 MB; writers wait for it
_OPERATOR_LOCK = 0x6C6F7261  # any fixed number: the advisory lock of the operator's writers


class OperatorSession(Session):
    """The sync side of an AsyncSession that sees all tenants."""


@event.listens_for(OperatorSession, "after_begin")
def _take_turns(session: OperatorSession, transaction: SessionTransaction, connection: Connection) -> None:
    if session.execution_options[WRITE] and connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _OPERATOR_LOCK})


class Database:
    """The engine, the connection pool and the sessions of one process."""

    def __init__(self, database_url: str) -> None:
        self._engine = create_engine(driver_url(database_url))
        guard(self._engine.sync_engine)
        self._snapshot: dict[str, Any] = {}
        if self._engine.dialect.name == "postgresql":
            self._snapshot = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}

    async def close(self) -> None:
        await self._engine.dispose()

    @asynccontextmanager
    async def operator(self, *, write: bool = False) -> AsyncIterator[AsyncSession]:
        """Open one transaction over all tenants' rows: committed after the block, rolled back on an error."""
        async with self._session(OperatorSession, {WRITE: write}) as session:
            yield session

    @asynccontextmanager
    async def tenant(self, tenant_id: str, *, write: bool = False) -> AsyncIterator[AsyncSession]:
        """Open one transaction over one tenant's rows. A write scope of a deleted tenant raises NotFound."""
        async with self._session(TenantSession, {WRITE: write, TENANT: tenant_id}) as session:
            yield session

    async def release_space(self) -> None:
        """Give free pages of SQLite's file back to the file system, a few at a time; Postgres does so itself. Stop
        while others write for long. A file that was made before this program enabled it stays as it is."""
        if self._engine.dialect.name != "sqlite":
            return
        with database_faults(), suppress(sqlite3.OperationalError):
            async with self._engine.connect() as connection:
                driver: Any = (await connection.get_raw_connection()).driver_connection
                free, before = await _free_pages(driver), 0
                while free and free != before:
                    await driver.executescript(_RELEASE_PAGES)  # `execute` would stop after the first page
                    free, before = await _free_pages(driver), free

    @asynccontextmanager
    async def _session(self, kind: type[Session], scope: dict[str, Any]) -> AsyncIterator[AsyncSession]:
        # Rows are read as the database has them, never as an earlier statement left them in the session.
        options = {**scope, "populate_existing": True, "synchronize_session": False}
        if not scope[WRITE]:
            options |= self._snapshot
        with database_faults():
            async with AsyncSession(self._engine, sync_session_class=kind, execution_options=options) as session:
                yield session
                await session.commit()


async def _free_pages(driver: Any) -> int:
    async with driver.execute("PRAGMA freelist_count") as found:
        (pages,) = await found.fetchone()
    return int(pages)


def create_engine(url: URL) -> AsyncEngine:
    """Return an engine with the settings of its database.

    Connections return to the pool with their transaction ended, or not at all. An additional rollback could be
    cancelled with its request, which would only produce a traceback.
    """
    if url.get_backend_name() == "postgresql":
        engine = create_async_engine(
            url,
            pool_size=_KEPT,
            max_overflow=_MORE,
            pool_timeout=_POOL_TIMEOUT,
            pool_reset_on_return=None,
            connect_args={"timeout": _CONNECT_TIMEOUT},
        )
        _ping_idle_connections(engine.sync_engine)
        return engine
    engine = create_async_engine(
        url,
        pool_timeout=_POOL_TIMEOUT,
        pool_reset_on_return=None,
        connect_args={"timeout": BUSY_TIMEOUT, "async_creator_fn": connect},
    )
    _configure_sqlite(engine.sync_engine)
    return engine


def _ping_idle_connections(engine: Engine) -> None:
    """Ping idle connections before they are used again, because the server may have restarted. Pinging before each use
    would take three more round trips, longer than most reads."""

    @event.listens_for(engine, "checkin")
    def rest(connection: Any, record: ConnectionPoolEntry) -> None:
        record.info[_IDLE_SINCE] = time.monotonic()

    @event.listens_for(engine, "checkout")
    def ping(connection: Any, record: ConnectionPoolEntry, _: PoolProxiedConnection) -> None:
        idle_since, driver = record.info.get(_IDLE_SINCE), record.driver_connection
        if idle_since is None:  # it is new
            return
        if driver is None or driver.is_closed():
            raise InvalidatePoolError
        if time.monotonic() - idle_since > _TRUSTED_SECONDS:
            try:
                engine.dialect.do_ping(connection)
            except (connection.dbapi.Error, OSError) as error:
                raise InvalidatePoolError from error


def _prepare_file(cursor: Any) -> None:
    """Set what a file of SQLite keeps. Retry while SQLite is busy: when several processes open a new file, SQLite
    rejects some without waiting, because its busy timeout does not apply to a change of the journal mode."""
    deadline = time.monotonic() + BUSY_TIMEOUT
    while True:
        try:
            cursor.execute("PRAGMA page_count")
            if cursor.fetchone() == (0,):  # a new file; later it would have no effect
                cursor.execute("PRAGMA auto_vacuum = INCREMENTAL")
            cursor.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            await_only(asyncio.sleep(_RETRY_SECONDS))
        else:
            return


def _configure_sqlite(engine: Engine) -> None:
    @event.listens_for(engine, "connect")
    def prepare(connection: Any, record: object) -> None:
        connection.isolation_level = None  # the driver must not begin transactions behind our back
        cursor = connection.cursor()
        _prepare_file(cursor)
        for pragma in ("synchronous = FULL", "foreign_keys = ON"):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    engine.dialect.do_terminate = _terminate  # type: ignore[assignment, method-assign]

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        driver = connection.connection.driver_connection
        assert isinstance(driver, SqliteConnection)
        write = connection.get_execution_options().get(WRITE, True)
        driver.begin("BEGIN IMMEDIATE" if write else "BEGIN DEFERRED", is_reading=not write)


def _terminate(connection: Any) -> None:
    """Close the connection of a cancelled task, which may be cancelled again: SQLAlchemy's own implementation would
    then leave a task that waits forever."""
    if not in_greenlet():  # it was garbage-collected
        connection.terminate()
        return
    ending = asyncio.ensure_future(_end(connection.driver_connection))
    while not ending.done():
        with suppress(asyncio.CancelledError):  # the task is being cancelled already
            await_only(asyncio.wait([ending]))


async def _end(driver: Any) -> None:
    """Roll back, then close: a closed connection keeps its lock as long as Python keeps one of its statements."""
    for ends in (driver.rollback, driver.close):
        with suppress(sqlite3.Error, ValueError):  # it is broken or already closed
            await ends()
