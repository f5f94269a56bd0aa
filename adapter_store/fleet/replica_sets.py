"""The sizes of adapters' replica sets, on which gateways agree without a leader: the largest that one of them needs."""

import json
from collections.abc import Mapping
from datetime import timedelta

from sqlalchemy import delete, insert, select

from loragate.adapter_store.database.clock import current_time
from loragate.adapter_store.database.database import Database
from loragate.adapter_store.tables.engines import ReplicaSetsRow

Sizes = Mapping[tuple[str, str], int]
"""The number of engines by the adapter's tenant id and digest."""

EXPIRY = timedelta(seconds=30)


class ReplicaSets:
    """The sizes that all processes need. Every method raises Unavailable while the database cannot be reached."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def exchange(self, process: str, needed: Sizes) -> dict[tuple[str, str], int]:
        """Record what a process needs for the next 30 seconds, and return the largest sizes that others need."""
        row = ReplicaSetsRow
        async with self._database.operator(write=True) as session:
            now = await current_time(session)
            await session.execute(delete(row).where((row.process == process) | (row.expires_at <= now)))
            others = (await session.scalars(select(row.sizes))).all()
            if needed:
                values = {"sizes": json.dumps([[*adapter, engines] for adapter, engines in needed.items()])}
                await session.execute(insert(row).values(process=process, **values, expires_at=now + EXPIRY))
        largest: dict[tuple[str, str], int] = {}
        for tenant_id, digest, engines in (each for sizes in others for each in json.loads(sizes)):
            largest[tenant_id, digest] = max(engines, largest.get((tenant_id, digest), 1))
        return largest
