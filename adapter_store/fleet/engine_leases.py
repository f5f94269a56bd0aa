"""The registry of engines: who starts an engine holds a lease for it, and gateways use the engines with a lease.

A lease ends by itself when it is not renewed. Times are the database's, so clocks of machines need not agree.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import delete, insert, select
from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.database.clock import current_time
from loragate.adapter_store.database.database import Database
from loragate.adapter_store.errors import Conflict
from loragate.adapter_store.tables.engines import EngineLeaseRow

LEASE = timedelta(seconds=15)
RENEW_SECONDS = 4.0
_KEPT = timedelta(hours=1)  # after it has expired


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLease:
    """An engine, its capacity and its load when the lease was renewed last.

    `machine` is the only one that can reach the target, None if any can. `certificate_name` is the name in the engine's
    certificate, None if it is the target's or there is none.
    """

    id: str
    target: str
    base_digest: str
    adapter_slots: int
    running: int = 0
    waiting: int = 0
    machine: str | None = None
    certificate_name: str | None = None
    expired: bool = False


_COLUMNS = tuple(name for name in EngineLease.__dataclass_fields__ if name != "expired")


class EngineLeases:
    """The leases of all engines. Every method raises Unavailable while the database cannot be reached."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def renew(self, lease: EngineLease, holder: str) -> None:
        """Take the lease, or extend the one that `holder` has.

        Raise Conflict if another engine has the id, or if other engines serve another base model.
        """
        async with self._database.operator(write=True) as session:
            now = await current_time(session)
            await self._check(session, lease, now)
            row = EngineLeaseRow
            await session.execute(delete(row).where((row.id == lease.id) | (row.expires_at <= now - _KEPT)))
            values = {name: getattr(lease, name) for name in _COLUMNS}
            await session.execute(insert(row).values(**values, holder=holder, expires_at=now + LEASE))

    async def give_back(self, engine_id: str, holder: str) -> None:
        """End the lease now, unless another process holds it."""
        row = EngineLeaseRow
        async with self._database.operator(write=True) as session:
            await session.execute(delete(row).where(row.id == engine_id, row.holder == holder))

    async def all(self) -> tuple[EngineLease, ...]:
        """Return the leases by id, including those that expired within the last hour."""
        async with self._database.operator() as session:
            now = await current_time(session)
            rows = await session.scalars(select(EngineLeaseRow).order_by(EngineLeaseRow.id))
            return tuple(_lease(row, now) for row in rows)

    async def _check(self, session: AsyncSession, lease: EngineLease, now: datetime) -> None:
        """Raise Conflict where `renew` does. The operator's writers take turns, so two new engines see each other."""
        live = (await session.scalars(select(EngineLeaseRow).where(EngineLeaseRow.expires_at > now))).all()
        for other in live:
            if other.id == lease.id and other.target != lease.target:
                raise Conflict(f"The engine at {other.target} has the id {lease.id} already.", code="engine_id_taken")
            if other.id != lease.id and other.base_digest != lease.base_digest:
                raise Conflict(
                    f"Engine {other.id} serves the base model {other.base_digest}, this one serves "
                    f"{lease.base_digest}: all engines of an installation must serve the same one.",
                    code="base_model_mismatch",
                )


def _lease(row: EngineLeaseRow, now: datetime) -> EngineLease:
    return EngineLease(**{name: getattr(row, name) for name in _COLUMNS}, expired=row.expires_at <= now)
