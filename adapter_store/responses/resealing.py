"""Resealing of what is stored under a previous secret, so that this secret can be retired."""

from typing import Any

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.responses.conversations import item_place, place
from loragate.adapter_store.responses.response import EndUser
from loragate.adapter_store.responses.rows import events_place, request_place, response_place
from loragate.adapter_store.responses.sealing import TenantSeal
from loragate.adapter_store.tables.responses import (
    ConversationItemRow,
    ConversationRow,
    ResponseEventsRow,
    StoredResponseRow,
)

_ROWS = 100  # of each kind in one transaction


class Resealing:
    """Part of a TenantScope."""

    def __init__(self, session: AsyncSession, seal: TenantSeal) -> None:
        self._session = session
        self._seal = seal

    async def some(self) -> int:
        """Seal some rows under the primary secret; return their number. Call it until it returns 0."""
        return sum([await self._responses(), await self._events(), await self._conversations(), await self._items()])

    async def _responses(self) -> int:
        row = StoredResponseRow
        found = (await self._session.scalars(select(row).where(self._old(row)).limit(_ROWS))).all()
        for each in found:
            content = self._seal.open(each.sealed_request, request_place(each.id))
            document = self._seal.open(each.sealed_response, response_place(each.id))
            request = content["request"]
            values = {
                "sealed_request": self._seal.seal(content, request_place(each.id)),
                "sealed_response": self._seal.seal(document, response_place(each.id)),
                **self._seal.tags(EndUser(request.get("user"), request.get("safety_identifier"))),
            }
            await self._write(row, (row.id == each.id,), values)
        return len(found)

    async def _events(self) -> int:
        row = ResponseEventsRow
        found = (await self._session.scalars(select(row).where(self._old(row)).limit(_ROWS))).all()
        for each in found:
            where = events_place(each.response_id, each.number)
            here = (row.response_id == each.response_id, row.number == each.number)
            await self._write(row, here, {"sealed": self._resealed(each.sealed, where)})
        return len(found)

    async def _conversations(self) -> int:
        row = ConversationRow
        found = (await self._session.scalars(select(row).where(self._old(row)).limit(_ROWS))).all()
        for each in found:
            await self._write(row, (row.id == each.id,), {"sealed": self._resealed(each.sealed, place(each.id))})
        return len(found)

    async def _items(self) -> int:
        row = ConversationItemRow
        found = (await self._session.scalars(select(row).where(self._old(row)).limit(_ROWS))).all()
        for each in found:
            where = item_place(each.conversation_id, each.position)
            content = self._seal.open(each.sealed, where)
            values = {
                "sealed": self._seal.seal(content, where),
                "id_tag": self._seal.item_tag(content["item"]["id"]),
                **self._seal.tags(EndUser(**content.get("end_user", {}))),
            }
            here = (row.conversation_id == each.conversation_id, row.position == each.position)
            await self._write(row, here, values)
        return len(found)

    def _old(self, row: Any) -> Any:
        return row.secret_id != self._seal.secret_id

    def _resealed(self, sealed: bytes, where: str) -> bytes:
        return self._seal.seal(self._seal.open(sealed, where), where)

    async def _write(self, row: Any, here: tuple[Any, ...], values: dict[str, Any]) -> None:
        await self._session.execute(update(row).where(*here).values(**values, secret_id=self._seal.secret_id))
