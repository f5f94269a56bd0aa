"""Holds of the sweep: while one is in force, no bytes are removed.

A backup holds the sweep while it copies, for a time that it renews. A restoration holds it until an operator confirms
what was restored: until then, bytes that are younger than the backup are kept, although nothing refers to them.
The sweep asks in the transactions in which it removes bytes. They and the one that takes a hold exclude each other.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta

from sqlalchemy import delete, exists, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.database.clock import current_time, database_now
from loragate.adapter_store.database.database import Database
from loragate.adapter_store.errors import Conflict, StoreError
from loragate.adapter_store.tables.recovery import RestorationRow, SweepHoldRow

log = logging.getLogger(__name__)

_HOLD = timedelta(minutes=15)
_RENEW_SECONDS = 60.0

StillHeld = Callable[[], Awaitable[None]]
"""Raises Conflict if the hold was lost, so that what was copied may be incomplete."""


async def is_held(session: AsyncSession) -> bool:
    """Return whether bytes must be kept. Needs the operator's session."""
    backup = exists().where(SweepHoldRow.expires_at > database_now())
    restoration = exists().where(RestorationRow.confirmed_at.is_(None))
    return bool(await session.scalar(select(or_(backup, restoration))))


@asynccontextmanager
async def hold_sweep(database: Database, backup_id: str) -> AsyncIterator[StillHeld]:
    """Hold the sweep during the block. Yields a function to call at its end. Raises Unavailable."""
    async with database.operator(write=True) as session:
        now = await current_time(session)
        await session.execute(delete(SweepHoldRow).where(SweepHoldRow.expires_at <= now))
        await session.execute(insert(SweepHoldRow).values(id=backup_id, expires_at=now + _HOLD))

    async def still_held() -> None:
        if not await _renew(database, backup_id):
            raise Conflict("The backup was paused for too long, and the sweep ran meanwhile; start the backup again.")

    renewing = asyncio.create_task(_renew_repeatedly(database, backup_id))
    try:
        yield still_held
    finally:
        renewing.cancel()
        await asyncio.wait((renewing,))
        async with database.operator(write=True) as session:
            await session.execute(delete(SweepHoldRow).where(SweepHoldRow.id == backup_id))


async def _renew_repeatedly(database: Database, backup_id: str) -> None:
    while True:
        await asyncio.sleep(_RENEW_SECONDS)
        try:
            await _renew(database, backup_id)
        except StoreError as error:
            log.warning("the hold of the sweep could not be renewed: %s", error.message)


async def _renew(database: Database, backup_id: str) -> bool:
    """Extend the hold; return False if it expired."""
    async with database.operator(write=True) as session:
        now = await current_time(session)
        row = SweepHoldRow
        held = update(row).where(row.id == backup_id, row.expires_at > now).values(expires_at=now + _HOLD)
        return (await session.execute(held.returning(row.id))).one_or_none() is not None
