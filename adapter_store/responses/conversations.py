"""Conversations of one tenant: items that responses read and add to."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import delete, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.audit.log import AuditLog
from loragate.adapter_store.database.clock import current_time
from loragate.adapter_store.database.keyset import newest_first
from loragate.adapter_store.database.page import DEFAULT_LIMIT, Page, checked_limit, cut_page
from loragate.adapter_store.errors import Conflict, Invalid, NotFound
from loragate.adapter_store.ids import random_base62
from loragate.adapter_store.names import could_be_id
from loragate.adapter_store.quotas import check_storage, check_stored_responses
from loragate.adapter_store.responses.response import (
    MAX_CONTEXT_BYTES,
    MAX_CONVERSATION_ITEMS,
    AddedItems,
    Conversation,
    Json,
)
from loragate.adapter_store.responses.rows import expiry
from loragate.adapter_store.responses.sealing import TenantSeal
from loragate.adapter_store.tables.responses import ConversationItemRow, ConversationRow

_ID_LENGTH = 32


class ConversationRepository:
    """Part of a TenantScope; every method sees that tenant's conversations only."""

    def __init__(self, session: AsyncSession, audit: AuditLog, seal: TenantSeal) -> None:
        self._session = session
        self._audit = audit
        self._seal = seal

    async def create(
        self, metadata: Mapping[str, str], items: Sequence[Json], lifetime: timedelta | None
    ) -> Conversation:
        """Create a conversation. Raise Conflict if a quota is exceeded."""
        conversation_id, now = f"conv_{random_base62(_ID_LENGTH)}", await current_time(self._session)
        sealed = self._seal.seal(dict(metadata), place(conversation_id))
        values = {
            "secret_id": self._seal.secret_id,
            "sealed": sealed,
            "size_bytes": len(sealed),
            "next_position": 0,
            "created_at": now,
            "expires_at": expiry(now, lifetime),
        }
        await self._session.execute(insert(ConversationRow).values(id=conversation_id, **values))
        await check_stored_responses(self._session)
        await self.add(conversation_id, AddedItems(items), lifetime)
        return await self.get(conversation_id)

    async def get(self, conversation_id: str) -> Conversation:
        return self._conversation(await self._row(conversation_id))

    async def list(self, *, after: str | None = None, limit: int = DEFAULT_LIMIT) -> Page[Conversation]:
        """Return conversations, newest first; `after` is the id of the last one seen."""
        page = await newest_first(self._session, ConversationRow, after=after, limit=limit)
        return Page(tuple(map(self._conversation, page)), page.has_more)

    async def update(self, conversation_id: str, metadata: Mapping[str, str]) -> Conversation:
        """Replace the metadata."""
        row = await self._row(conversation_id)
        sealed = self._seal.seal(dict(metadata), place(conversation_id))
        size = row.size_bytes - len(row.sealed) + len(sealed)
        changed = update(ConversationRow).where(ConversationRow.id == conversation_id)
        await self._session.execute(changed.values(sealed=sealed, size_bytes=size))
        await check_storage(self._session)
        return await self.get(conversation_id)

    async def delete(self, conversation_id: str) -> None:
        """Delete a conversation with its items. Responses that used it stay."""
        await self._row(conversation_id)
        items = delete(ConversationItemRow).where(ConversationItemRow.conversation_id == conversation_id)
        await self._session.execute(items)
        await self._session.execute(delete(ConversationRow).where(ConversationRow.id == conversation_id))
        await self._audit.record("conversation.delete", f"conversation:{conversation_id}")

    async def add(self, conversation_id: str, added: AddedItems, lifetime: timedelta | None) -> None:
        """Add items at the end. Raise Conflict if a quota is exceeded."""
        row = await self._row(conversation_id, param="conversation")
        rows: list[dict[str, Any]] = []
        for position, item in enumerate(added.items, row.next_position):
            content = {"item": item, "end_user": asdict(added.end_user)}
            sealed = self._seal.seal(content, item_place(conversation_id, position))
            rows.append(
                {
                    "conversation_id": conversation_id,
                    "position": position,
                    "id_tag": self._seal.item_tag(item["id"]),
                    "response_id": added.response_id,
                    **self._seal.tags(added.end_user),
                    "secret_id": self._seal.secret_id,
                    "sealed": sealed,
                    "size_bytes": len(sealed),
                }
            )
        if rows:
            await self._session.execute(insert(ConversationItemRow), rows)
        size = sum(len(each["sealed"]) for each in rows)
        changes = {
            "next_position": row.next_position + len(rows),
            "size_bytes": row.size_bytes + size,
            "expires_at": expiry(await current_time(self._session), lifetime),
        }
        await self._session.execute(
            update(ConversationRow).where(ConversationRow.id == conversation_id).values(**changes)
        )
        await self._check_items(conversation_id)
        await check_storage(self._session)

    async def context(self, conversation_id: str) -> Sequence[Json]:
        """Return all items in order. Raise Invalid if they are too large to be a request's input."""
        if (await self._row(conversation_id, param="conversation")).size_bytes > MAX_CONTEXT_BYTES:
            raise Invalid(
                f"The items of the conversation have more than {MAX_CONTEXT_BYTES} bytes; begin another one.",
                param="conversation",
                code="context_too_large",
            )
        return await self._items(conversation_id)

    async def exported_items(self, conversation_id: str) -> Sequence[Json]:
        """Return all items in order, however many bytes they have."""
        return await self._items(conversation_id)

    async def _items(self, conversation_id: str) -> Sequence[Json]:
        row = ConversationItemRow
        query = select(row).where(row.conversation_id == conversation_id).order_by(row.position)
        return [self._item(each) for each in await self._session.scalars(query)]

    async def items(
        self, conversation_id: str, *, after: str | None, limit: int, ascending: bool = False
    ) -> Page[Json]:
        """Return a page of items behind the item with the id `after`."""
        checked_limit(limit)
        await self._row(conversation_id)
        row = ConversationItemRow
        query = select(row).where(row.conversation_id == conversation_id)
        if after is not None:
            position = await self._position(conversation_id, after)
            if position is None:
                raise Invalid("`after` is not the id of an item of this conversation.", param="after")
            query = query.where(row.position > position if ascending else row.position < position)
        query = query.order_by(row.position if ascending else row.position.desc()).limit(limit + 1)
        return cut_page([self._item(each) for each in await self._session.scalars(query)], limit)

    async def item(self, conversation_id: str, item_id: str) -> Json:
        """Return an item."""
        return self._item(await self._item_row(conversation_id, item_id))

    async def delete_item(self, conversation_id: str, item_id: str) -> Conversation:
        """Delete an item; return its conversation."""
        item = await self._item_row(conversation_id, item_id)
        row, talk = ConversationItemRow, ConversationRow
        here = (row.conversation_id == conversation_id, row.position == item.position)
        await self._session.execute(delete(row).where(*here))
        smaller = update(talk).where(talk.id == conversation_id).values(size_bytes=talk.size_bytes - item.size_bytes)
        await self._session.execute(smaller)
        await self._audit.record("conversation.delete_item", f"conversation:{conversation_id}")
        return await self.get(conversation_id)

    async def export(self, after: tuple[datetime, str] | None, limit: int) -> Sequence[Conversation]:
        """Return the next conversations, oldest first."""
        row = ConversationRow
        query = select(row).order_by(row.created_at, row.id).limit(limit)
        if after is not None:
            made, last = after
            query = query.where((row.created_at > made) | ((row.created_at == made) & (row.id > last)))
        return [self._conversation(each) for each in await self._session.scalars(query)]

    async def _check_items(self, conversation_id: str) -> None:
        row = ConversationItemRow
        count = select(func.count(row.position)).where(row.conversation_id == conversation_id)
        if (await self._session.scalar(count) or 0) > MAX_CONVERSATION_ITEMS:
            raise Conflict(
                f"A conversation may have {MAX_CONVERSATION_ITEMS} items; delete some, or begin another one.",
                code="conversation_too_long",
                param="conversation",
            )

    async def _row(self, conversation_id: str, param: str = "conversation_id") -> ConversationRow:
        row = None
        if could_be_id(conversation_id):
            query = select(ConversationRow).where(ConversationRow.id == conversation_id)
            row = await self._session.scalar(query.execution_options(populate_existing=True))
        if row is None:
            raise NotFound("The conversation does not exist.", code="conversation_not_found", param=param)
        return row

    async def _item_row(self, conversation_id: str, item_id: str) -> ConversationItemRow:
        await self._row(conversation_id)
        position = await self._position(conversation_id, item_id)
        row = ConversationItemRow
        here = (row.conversation_id == conversation_id, row.position == position)
        found = None if position is None else await self._session.scalar(select(row).where(*here))
        if found is None:
            raise NotFound("The item does not exist.", code="item_not_found", param="item_id")
        return found

    async def _position(self, conversation_id: str, item_id: str) -> int | None:
        """Return where the item is; of several with the same id, the first one."""
        row, tags = ConversationItemRow, self._seal.possible_tags("item", item_id)
        query = select(func.min(row.position)).where(row.conversation_id == conversation_id, row.id_tag.in_(tags))
        return await self._session.scalar(query)

    def _conversation(self, row: ConversationRow) -> Conversation:
        metadata = self._seal.open(row.sealed, place(row.id))
        return Conversation(row.id, metadata, row.created_at, row.expires_at, row.size_bytes)

    def _item(self, row: ConversationItemRow) -> Json:
        item: Json = self._seal.open(row.sealed, item_place(row.conversation_id, row.position))["item"]
        return item


def place(conversation_id: str) -> str:
    """Return the place of a conversation's sealed metadata."""
    return f"conversations/{conversation_id}"


def item_place(conversation_id: str, position: int) -> str:
    """Return the place of a sealed item."""
    return f"conversation_items/{conversation_id}/{position}"
