"""The lease of a response that runs in the background: its worker's events and its end, which have no effect once the
worker has lost the lease."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.database.clock import current_time, database_now
from loragate.adapter_store.jobs.lease import LEASE, LeaseLost
from loragate.adapter_store.responses.response import Json, ResponseStatus
from loragate.adapter_store.responses.rows import events_place, response_place
from loragate.adapter_store.responses.sealing import TenantSeal
from loragate.adapter_store.tables.responses import ResponseEventsRow, StoredResponseRow
from loragate.adapter_store.usage.record import UsageRecord
from loragate.adapter_store.usage.settlement import UsageSettlement


@dataclass(frozen=True)
class HeldState:
    """What a worker learns when it renews its lease."""

    status: ResponseStatus
    next_event: int


class ResponseLease:
    """Part of a TenantScope. Every method needs the lease, and raises LeaseLost without it."""

    def __init__(self, session: AsyncSession, seal: TenantSeal) -> None:
        self._session = session
        self._seal = seal

    async def renew(self, response_id: str, worker: str) -> HeldState:
        """Renew the lease; return the state of the response, which its tenant may have cancelled."""
        return await self._change(response_id, worker, held_until=await current_time(self._session) + LEASE)

    async def start(self, response_id: str, worker: str, document: Json) -> HeldState:
        """Record that the response is being generated, from its beginning: events of an earlier attempt are removed,
        and further ones have higher numbers."""
        state = await self._change(response_id, worker)
        if state.status.ended:
            return state
        row = ResponseEventsRow
        gone = delete(row).where(row.response_id == response_id).returning(row.sealed)
        removed = sum(len(each) for each in await self._session.scalars(gone))
        sealed = self._seal.seal(document, response_place(response_id))
        size = StoredResponseRow.size_bytes - removed
        changes = {"status": ResponseStatus.IN_PROGRESS, "sealed_response": sealed, "size_bytes": size}
        await self._change(response_id, worker, **changes)
        return state

    async def add_events(self, response_id: str, worker: str, events: Sequence[Json]) -> HeldState:
        """Add events, whose numbers follow each other."""
        state = await self._change(response_id, worker)
        await self._add(response_id, worker, events)
        return state

    async def finish(
        self,
        response_id: str,
        worker: str,
        document: Json,
        usage: UsageRecord | None,
        events: Sequence[Json] = (),
    ) -> ResponseStatus:
        """Record the end of the response with its usage and its last events; return its status. One that was cancelled
        meanwhile stays cancelled, with the output that it has."""
        state = await self._change(response_id, worker)
        status = ResponseStatus(document["status"])
        if state.status.ended:
            status = state.status
            document = {**document, "status": status.value, "incomplete_details": None, "completed_at": None}
        await self._add(response_id, worker, events)
        if usage is not None:
            await UsageSettlement(self._session).settle([usage])
        sealed = self._seal.seal(document, response_place(response_id))
        size = StoredResponseRow.size_bytes + len(sealed)
        changes: dict[str, object] = {"status": status, "sealed_response": sealed, "size_bytes": size}
        await self._change(response_id, worker, **changes, finished_at=database_now(), worker=None, held_until=None)
        return status

    async def release(self, response_id: str, worker: str) -> None:
        """Return the response to the queue; the attempt does not count."""
        attempts = StoredResponseRow.attempts - 1
        await self._change(response_id, worker, worker=None, held_until=None, attempts=attempts)

    async def _add(self, response_id: str, worker: str, events: Sequence[Json]) -> None:
        if not events:
            return
        first, last = events[0]["sequence_number"], events[-1]["sequence_number"]
        sealed = self._seal.seal(list(events), events_place(response_id, first))
        row = {"response_id": response_id, "number": first, "last_number": last, "sealed": sealed}
        await self._session.execute(insert(ResponseEventsRow).values(**row, secret_id=self._seal.secret_id))
        size = StoredResponseRow.size_bytes + len(sealed)
        await self._change(response_id, worker, next_event=last + 1, size_bytes=size)

    async def _change(self, response_id: str, held_by: str, /, **values: object) -> HeldState:
        """Change the response if the worker holds it; return its state before the change."""
        row = StoredResponseRow
        held = (row.id == response_id, row.worker == held_by, row.held_until > database_now())
        query = select(row.status, row.next_event).where(*held).with_for_update()
        found = (await self._session.execute(query)).one_or_none()
        if found is None:
            raise LeaseLost("This worker does not hold the response any more.")
        if values:
            await self._session.execute(update(row).where(*held).values(**values))
        return HeldState(ResponseStatus(found.status), found.next_event)
