"""The database's clock, which all processes share, and the time by which old data is removed."""

from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import literal, select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from loragate.adapter_store.tables.base import UtcDateTime
from loragate.adapter_store.timestamps import elapsed, utc_now

_started = utc_now(), elapsed()  # this process


class database_now(FunctionElement[datetime]):
    """SQL: the current time as an aware datetime in UTC."""

    type = UtcDateTime()
    inherit_cache = True


@compiles(database_now, "sqlite")
def _sqlite(element: database_now, compiler: SQLCompiler, **options: Any) -> str:
    return "strftime('%Y-%m-%d %H:%M:%f000', 'now')"


@compiles(database_now, "postgresql")
def _postgres(element: database_now, compiler: SQLCompiler, **options: Any) -> str:
    return "clock_timestamp()"


class database_later(FunctionElement[datetime]):
    """SQL: the current time and a delay."""

    type = UtcDateTime()
    inherit_cache = True

    def __init__(self, delay: timedelta) -> None:
        super().__init__(literal(delay.total_seconds()))


@compiles(database_later, "sqlite")
def _sqlite_later(element: database_later, compiler: SQLCompiler, **options: Any) -> str:
    delay = compiler.process(element.clauses, **options)
    return f"strftime('%Y-%m-%d %H:%M:%f000', 'now', {delay} || ' seconds')"


@compiles(database_later, "postgresql")
def _postgres_later(element: database_later, compiler: SQLCompiler, **options: Any) -> str:
    return f"clock_timestamp() + make_interval(secs => {compiler.process(element.clauses, **options)})"


async def current_time(session: AsyncSession) -> datetime:
    """Return the current time, as an aware datetime in UTC."""
    return (await session.execute(select(database_now()))).scalar_one()


async def earliest_time(session: AsyncSession) -> datetime:
    """Return the earliest of the times that the host's clock, the database's, and the host's clock at the start of this
    process with the time since then show.

    What is removed for its age is removed by this time, so that no clock that is wrong or jumps forward removes
    anything early.
    """
    started, moment = _started
    uninterrupted = started + timedelta(seconds=elapsed() - moment)
    return min(utc_now(), await current_time(session), uninterrupted)
