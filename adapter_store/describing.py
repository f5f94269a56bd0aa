"""Writes down what is said of an adapter, and keeps what it is found by true."""

from sqlalchemy import delete, insert, update
from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.description import Description
from loragate.adapter_store.search_text import search_text
from loragate.adapter_store.tables import AdapterRow, AdapterTagRow


async def describe(session: AsyncSession, adapter_id: str, name: str, said: Description) -> None:
    """In place of what was said before. A tenant's session."""
    texts = {"tags": said.tags, "description": said.text, "search_text": search_text(name, said)}
    await session.execute(update(AdapterRow).where(AdapterRow.id == adapter_id).values(**texts))
    await session.execute(delete(AdapterTagRow).where(AdapterTagRow.adapter_id == adapter_id))
    for tag in said.tags:
        await session.execute(insert(AdapterTagRow).values(adapter_id=adapter_id, tag=tag))
