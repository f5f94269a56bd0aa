"""The database's clock, which all processes share."""

from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from loragate.adapter_store.tables.base import UtcDateTime


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


async def current_time(session: AsyncSession) -> datetime:
    """Return the current time, as an aware datetime in UTC."""
    return (await session.execute(select(database_now()))).scalar_one()
