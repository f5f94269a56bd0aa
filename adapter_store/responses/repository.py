"""Responses of one tenant, as the tenant stores, reads and deletes them."""

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from sqlalchemy import Select, delete, func, insert, literal, select, update
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import InstrumentedAttribute, aliased

from loragate.adapter_store.audit.log import AuditLog
from loragate.adapter_store.database.clock import current_time, database_now
from loragate.adapter_store.database.keyset import newest_of
from loragate.adapter_store.database.page import DEFAULT_LIMIT, Page
from loragate.adapter_store.errors import Conflict, Invalid, NotFound
from loragate.adapter_store.names import could_be_id
from loragate.adapter_store.quotas import check_storage, check_stored_responses
from loragate.adapter_store.responses.response import (
    MAX_CHAIN,
    MAX_CONTEXT_BYTES,
    MAX_UNFINISHED,
    UNFINISHED,
    Json,
    NewResponse,
    ResponseStatus,
    ResponseSummary,
    StorageUse,
    StoredEntry,
    StoredRequest,
    StoredResponse,
)
from loragate.adapter_store.responses.rows import (
    SUMMARY,
    events_place,
    expiry,
    request_place,
    response_of,
    response_place,
    storage_use,
    summary_of,
)
from loragate.adapter_store.responses.sealing import TenantSeal
from loragate.adapter_store.tables.responses import (
    ConversationItemRow,
    ConversationRow,
    ResponseEventsRow,
    StoredResponseRow,
)

_EVENT_ROWS = 256  # read at a time
_DELETED = 500  # responses in one transaction


class ResponseRepository:
    """Part of a TenantScope; every method sees that tenant's responses only."""

    def __init__(self, session: AsyncSession, audit: AuditLog, seal: TenantSeal) -> None:
        self._session = session
        self._audit = audit
        self._seal = seal

    async def check_room(self, *, background: bool = False) -> None:
        """Raise Conflict if the tenant may store no more responses. Call it before the work."""
        await check_stored_responses(self._session, more=1)
        if background:
            unfinished = select(func.count(StoredResponseRow.id)).where(StoredResponseRow.status.in_(UNFINISHED))
            if (await self._session.scalar(unfinished) or 0) >= MAX_UNFINISHED:
                raise Conflict(
                    f"This tenant has {MAX_UNFINISHED} responses in the background; wait for one, or cancel one.",
                    code="too_many_background_responses",
                    param="background",
                )

    async def add(self, new: NewResponse) -> StoredResponse:
        """Store a response. Raise Conflict if a quota is exceeded."""
        now = await current_time(self._session)
        chain_id, depth = await self._next_in_chain(new)
        request = {"items": list(new.items), "request": new.request}
        sealed_request = self._seal.seal(request, request_place(new.id))
        sealed_response = self._seal.seal(new.document, response_place(new.id))
        values = {
            "id": new.id,
            "key_id": new.key_id,
            "model": new.model[:512],
            "status": new.status,
            "background": new.background,
            "streamed": new.streamed,
            "previous_id": new.previous_id,
            "chain_id": chain_id,
            "depth": depth,
            "conversation_id": new.conversation_id,
            **self._seal.tags(new.end_user),
            "secret_id": self._seal.secret_id,
            "sealed_request": sealed_request,
            "sealed_response": sealed_response,
            "size_bytes": len(sealed_request) + len(sealed_response),
            "next_event": 0,
            "attempts": 0,
            "created_at": now,
            "finished_at": now if new.status.ended else None,
            "expires_at": expiry(now, new.lifetime),
        }
        await self._session.execute(insert(StoredResponseRow).values(**values))
        await check_stored_responses(self._session)
        await check_storage(self._session)
        return await self.get(new.id)

    async def get(self, response_id: str) -> StoredResponse:
        return response_of(await self._row(response_id), self._seal)

    async def request_of(self, response_id: str) -> StoredRequest:
        """Return the request of a response."""
        return self._request(await self._row(response_id))

    async def list(self, *, after: str | None = None, limit: int = DEFAULT_LIMIT) -> Page[ResponseSummary]:
        """Return responses without their content, newest first; `after` is the id of the last one seen."""
        page = await newest_of(self._session, StoredResponseRow, select(*SUMMARY), after=after, limit=limit)
        return Page(tuple(map(summary_of, page)), page.has_more)

    async def context(self, response_id: str) -> Sequence[Json]:
        """Return the items of a response that is continued: those of its chain from the beginning, each response's
        input before its output. Raise Invalid if it, or one that it continues, does not exist any more or has not
        ended."""
        rows = await self._chain(response_id)
        items: list[Json] = []
        for row in rows:
            items += self._request(row).items
            items += self._seal.open(row.sealed_response, response_place(row.id))["output"]
        return items

    async def input_items(self, response_id: str) -> Sequence[Json]:
        """Return the items that a response was generated from, in order; only its own if it can no longer be continued
        from its beginning."""
        row = await self._row(response_id)
        before: Sequence[Json] = ()
        if row.previous_id is not None:
            with suppress(Invalid):  # one of the chain was deleted: what is left is this one's own
                before = await self.context(row.previous_id)
        return [*before, *self._request(row).items]

    async def events(self, response_id: str, after: int) -> Sequence[Json]:
        """Return the next events of a streamed response, behind the one with number `after`."""
        row = ResponseEventsRow
        query = select(row).where(row.response_id == response_id, row.last_number > after)
        found = (await self._session.scalars(query.order_by(row.number).limit(_EVENT_ROWS))).all()
        return [
            event
            for each in found
            for event in self._seal.open(each.sealed, events_place(response_id, each.number))
            if event["sequence_number"] > after
        ]

    async def cancel(self, response_id: str) -> StoredResponse:
        """Cancel a background response; one that has ended stays as it is. Raise Invalid for another one."""
        row = await self._row(response_id)
        if not row.background:
            raise Invalid(
                "Only responses that were created with background=true can be cancelled.",
                param="response_id",
                code="response_not_background",
            )
        stored = response_of(row, self._seal)
        if stored.status.ended:
            return stored
        document = {**stored.document, "status": ResponseStatus.CANCELLED}
        changes = {
            "status": ResponseStatus.CANCELLED,
            "sealed_response": self._seal.seal(document, response_place(response_id)),
            "finished_at": database_now(),
        }
        await self._session.execute(
            update(StoredResponseRow).where(StoredResponseRow.id == response_id).values(**changes)
        )
        await self._audit.record("response.cancel", f"response:{response_id}", before={"status": stored.status})
        return await self.get(response_id)

    async def delete(self, response_id: str) -> None:
        """Delete a response, its events, and the items that it added to a conversation."""
        await self._row(response_id)
        await self._remove([response_id])
        await self._audit.record("response.delete", f"response:{response_id}")

    async def delete_some_of(self, kind: str, name: str) -> int:
        """Delete responses of the tenant's `user` or `safety_identifier` of this name, and the items that they added to
        conversations; return their number. Call it until it returns 0."""
        tags = self._seal.possible_tags(kind, name)
        column = _TAGS[kind]
        query = select(StoredResponseRow.id).where(column.in_(tags)).limit(_DELETED)
        ids = list(await self._session.scalars(query))
        await self._remove(ids)
        removed = len(ids) + await self._remove_items(_ITEM_TAGS[kind].in_(tags))
        if removed:
            facts = {"by": kind, "responses": len(ids)}
            await self._audit.record("response.delete_of_user", "responses", before=facts)
        return removed

    async def delete_all(self) -> int:
        """Delete some of the tenant's responses; return their number. Call it until it returns 0."""
        ids = list(await self._session.scalars(select(StoredResponseRow.id).limit(_DELETED)))
        await self._remove(ids)
        return len(ids)

    async def status(self, response_id: str) -> ResponseStatus | None:
        """Return the status of a response; None if it is not stored."""
        found = await self._session.scalar(select(StoredResponseRow.status).where(StoredResponseRow.id == response_id))
        return None if found is None else ResponseStatus(found)

    async def export(self, after: tuple[datetime, str] | None, limit: int) -> Sequence[StoredEntry]:
        """Return the next responses with their requests, oldest first."""
        row = StoredResponseRow
        query = select(row).order_by(row.created_at, row.id).limit(limit)
        if after is not None:
            made, last = after
            query = query.where((row.created_at > made) | ((row.created_at == made) & (row.id > last)))
        found = await self._session.scalars(query)
        return [StoredEntry(response_of(each, self._seal), self._request(each)) for each in found]

    async def use(self) -> StorageUse:
        """Return what the tenant stores."""
        return await storage_use(self._session)

    def _request(self, row: StoredResponseRow) -> StoredRequest:
        content = self._seal.open(row.sealed_request, request_place(row.id))
        return StoredRequest(content["items"], content["request"])

    async def _row(self, response_id: str) -> StoredResponseRow:
        row = None
        if could_be_id(response_id):
            query = select(StoredResponseRow).where(StoredResponseRow.id == response_id)
            row = await self._session.scalar(query.execution_options(populate_existing=True))
        if row is None:
            raise NotFound("The response does not exist.", code="response_not_found", param="response_id")
        return row

    async def _next_in_chain(self, new: NewResponse) -> tuple[str, int]:
        if new.previous_id is None:
            return new.id, 1
        row = StoredResponseRow
        query = select(row.chain_id, row.depth).where(row.id == new.previous_id)
        found = (await self._session.execute(query)).one_or_none()
        return (new.id, 1) if found is None else (found.chain_id, found.depth + 1)

    async def _chain(self, response_id: str) -> Sequence[StoredResponseRow]:
        """Return the rows of a chain that ends with this response, the first one first."""
        row = StoredResponseRow
        links = (await self._session.execute(_links(response_id))).all() if could_be_id(response_id) else []
        ids = [each.id for each in links]
        if len(ids) < MAX_CHAIN and (not links or links[-1].previous_id is not None):
            raise _no_previous()
        if len(ids) >= MAX_CHAIN:
            raise Invalid(
                f"At most {MAX_CHAIN} responses may continue each other; send the items as 'input'.",
                param="previous_response_id",
                code="chain_too_long",
            )
        size = select(func.sum(func.length(row.sealed_request) + func.length(row.sealed_response)))
        if int(await self._session.scalar(size.where(row.id.in_(ids))) or 0) > MAX_CONTEXT_BYTES:
            raise Invalid(
                f"The responses that it continues have more than {MAX_CONTEXT_BYTES} bytes: send items as 'input'.",
                param="previous_response_id",
                code="context_too_large",
            )
        rows = {each.id: each for each in await self._session.scalars(select(row).where(row.id.in_(ids)))}
        if any(not ResponseStatus(each.status).ended for each in rows.values()):
            raise Invalid(
                "The previous response has not ended yet.", param="previous_response_id", code="response_in_progress"
            )
        return [rows[each] for each in reversed(ids)]

    async def _remove(self, ids: Sequence[str]) -> None:
        if not ids:
            return
        events = ResponseEventsRow
        await self._session.execute(delete(events).where(events.response_id.in_(ids)))
        await self._remove_items(ConversationItemRow.response_id.in_(ids))
        await self._session.execute(delete(StoredResponseRow).where(StoredResponseRow.id.in_(ids)))

    async def _remove_items(self, condition: Any) -> int:
        item, talk = ConversationItemRow, ConversationRow
        gone = delete(item).where(condition).returning(item.conversation_id, item.size_bytes)
        sizes: dict[str, int] = {}
        found = (await self._session.execute(gone)).all()
        for each in found:
            sizes[each.conversation_id] = sizes.get(each.conversation_id, 0) + each.size_bytes
        for conversation_id, size in sizes.items():
            smaller = update(talk).where(talk.id == conversation_id).values(size_bytes=talk.size_bytes - size)
            await self._session.execute(smaller)
        return len(found)


_TAGS: dict[str, InstrumentedAttribute[bytes | None]] = {
    "user": StoredResponseRow.user_tag,
    "safety_identifier": StoredResponseRow.safety_tag,
}
_ITEM_TAGS: dict[str, InstrumentedAttribute[bytes | None]] = {
    "user": ConversationItemRow.user_tag,
    "safety_identifier": ConversationItemRow.safety_tag,
}


def _links(response_id: str) -> Select[str, str | None]:
    """Select a response and those that it continues, one after the other, however many others continue these."""
    row, older = StoredResponseRow, aliased(StoredResponseRow)
    last = select(row.id, row.previous_id, literal(1).label("place")).where(row.id == response_id)
    chain = last.cte("chain", recursive=True)
    before = select(older.id, older.previous_id, chain.c.place + 1)
    chain = chain.union_all(before.where(older.id == chain.c.previous_id, chain.c.place < MAX_CHAIN))
    return select(row.id, row.previous_id).join(chain, row.id == chain.c.id).order_by(chain.c.place)


def _no_previous() -> Invalid:
    return Invalid(
        "The previous response does not exist: it was not stored, or it or one that it continues was deleted or has "
        "expired.",
        param="previous_response_id",
        code="previous_response_not_found",
    )
