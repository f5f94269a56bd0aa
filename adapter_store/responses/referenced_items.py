"""Items that a request refers to by their ids: those of the tenant's stored responses, and of its conversations."""

from collections.abc import Collection, Mapping, Sequence

from sqlalchemy import func, select, tuple_
from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.errors import Invalid
from loragate.adapter_store.responses.conversations import item_place
from loragate.adapter_store.responses.response import MAX_CONTEXT_BYTES, MAX_REFERENCES, Json
from loragate.adapter_store.responses.rows import request_place, response_place
from loragate.adapter_store.responses.sealing import TenantSeal
from loragate.adapter_store.tables.responses import ConversationItemRow, StoredResponseRow


class ReferencedItems:
    """Part of a TenantScope; it finds that tenant's items only."""

    def __init__(self, session: AsyncSession, seal: TenantSeal) -> None:
        self._session = session
        self._seal = seal

    async def find(self, wanted: Mapping[str, str | None]) -> Mapping[str, Json]:
        """Return the items with these ids, as far as they exist, in a fixed number of statements. `wanted` maps an id
        to that of the response that it was made for, if it was made for one. Raise Invalid if there are too many, or
        they are too large to be a request's input."""
        if len(wanted) > MAX_REFERENCES:
            words = f"The input may refer to {MAX_REFERENCES} stored items; send the items themselves."
            raise Invalid(words, param="input", code="too_many_references")
        found = await self._of_responses(wanted)
        return {**found, **await self._of_conversations(wanted.keys() - found.keys())}

    async def _of_responses(self, wanted: Mapping[str, str | None]) -> dict[str, Json]:
        row, ids = StoredResponseRow, {each for each in wanted.values() if each is not None}
        if not ids:
            return {}
        size = select(func.sum(func.length(row.sealed_request) + func.length(row.sealed_response)))
        _check_size(await self._session.scalar(size.where(row.id.in_(ids))))
        found: dict[str, Json] = {}
        for each in await self._session.scalars(select(row).where(row.id.in_(ids))):
            own: Sequence[Json] = self._seal.open(each.sealed_request, request_place(each.id))["items"]
            output: Sequence[Json] = self._seal.open(each.sealed_response, response_place(each.id))["output"]
            found |= {item["id"]: item for item in (*own, *output) if wanted.get(item["id"]) == each.id}
        return found

    async def _of_conversations(self, ids: Collection[str]) -> dict[str, Json]:
        row = ConversationItemRow
        tags = [tag for item_id in ids for tag in self._seal.possible_tags("item", item_id)]
        if not tags:
            return {}
        # An id may be that of many items, if a client has chosen it: the database returns one place for each.
        one = select(row.id_tag, func.min(row.conversation_id)).where(row.id_tag.in_(tags)).group_by(row.id_tag)
        talks = [tuple(each) for each in (await self._session.execute(one)).all()]
        first = select(row.conversation_id, func.min(row.position)).where(
            tuple_(row.id_tag, row.conversation_id).in_(talks)
        )
        first = first.group_by(row.id_tag, row.conversation_id)
        places = [tuple(each) for each in (await self._session.execute(first)).all()]
        here = tuple_(row.conversation_id, row.position).in_(places)
        _check_size(await self._session.scalar(select(func.sum(row.size_bytes)).where(here)))
        items = [
            self._seal.open(each.sealed, item_place(each.conversation_id, each.position))["item"]
            for each in await self._session.scalars(select(row).where(here))
        ]
        return {item["id"]: item for item in items}


def _check_size(size: int | None) -> None:
    if int(size or 0) > MAX_CONTEXT_BYTES:
        words = f"What the input refers to has more than {MAX_CONTEXT_BYTES} bytes: send the items themselves."
        raise Invalid(words, param="input", code="context_too_large")
