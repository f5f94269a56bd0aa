"""Writes down what is said of an adapter, and keeps what it is found by true."""

from sqlalchemy import delete, insert, update
from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.adapters.adapter import Adapter
from loragate.adapter_store.adapters.description import Description
from loragate.adapter_store.adapters.search_text import search_text
from loragate.adapter_store.tables.base import AdapterRow, AdapterTagRow


async def describe(session: AsyncSession, adapter: Adapter, said: Description) -> None:
    """In place of what was said before. A tenant's session."""
    texts = {"tags": said.tags, "description": said.text, "search_text": search_text(adapter.name, said)}
    await session.execute(update(AdapterRow).where(AdapterRow.id == adapter.id).values(**texts))
    await session.execute(delete(AdapterTagRow).where(AdapterTagRow.adapter_id == adapter.id))
    for tag in said.tags:
        row = {"adapter_id": adapter.id, "tag": tag, "created_at": adapter.created_at}
        await session.execute(insert(AdapterTagRow).values(**row))
