"""A staged adapter becomes a version: number and row in one short transaction."""

from sqlalchemy import insert, update
from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.adapter import AdapterVersion, VersionStatus
from loragate.adapter_store.base62 import new_id
from loragate.adapter_store.description import NOTHING_SAID
from loragate.adapter_store.search_text import search_text
from loragate.adapter_store.staging import StagedAdapter
from loragate.adapter_store.tables import AdapterRow, AdapterVersionRow
from loragate.adapter_store.times import utc_now
from loragate.adapter_store.versions import find_adapter


async def register(session: AsyncSession, name: str, staged: StagedAdapter) -> AdapterVersion:
    """Gives the adapter its next number; the scope's lock keeps two publications from getting one."""
    now = utc_now()
    adapter_id, last_version = await _find_or_add(session, name)
    published = AdapterVersion(
        adapter_id=adapter_id,
        name=name,
        version=last_version + 1,
        digest=staged.digest,
        status=VersionStatus.READY,
        rank=staged.rank,
        size_bytes=staged.size_bytes,
        base_model=staged.base_model,
        base_digest=staged.base_digest,
        created_at=now,
    )
    numbered = update(AdapterRow).where(AdapterRow.id == adapter_id)
    await session.execute(numbered.values(last_version=published.version, updated_at=now))
    await _add_version(session, published, staged.config)
    return published


async def _find_or_add(session: AsyncSession, name: str) -> tuple[str, int]:
    """The adapter's id and the last number it gave."""
    adapter = await find_adapter(session, name)
    if adapter is not None:
        return adapter.id, adapter.last_version
    adapter_id, now = new_id("ad"), utc_now()
    await session.execute(
        insert(AdapterRow).values(
            id=adapter_id,
            name=name,
            search_text=search_text(name, NOTHING_SAID),
            last_version=0,
            created_at=now,
            updated_at=now,
        )
    )
    return adapter_id, 0


async def _add_version(session: AsyncSession, published: AdapterVersion, config: bytes) -> None:
    await session.execute(
        insert(AdapterVersionRow).values(
            adapter_id=published.adapter_id,
            version=published.version,
            digest=published.digest,
            status=published.status.value,
            rank=published.rank,
            size_bytes=published.size_bytes,
            config=config,
            base_model=published.base_model,
            base_digest=published.base_digest,
            created_at=published.created_at,
        )
    )
