"""Quarantine of corrupt bytes, which are detected while they are read.

A version with corrupt bytes is not served: the bytes are moved to quarantine and the version is `quarantined`, until
the same content is published again. Other versions and adapters are not affected.
"""

import asyncio
import logging
from collections.abc import AsyncIterator

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.adapters.adapter import VersionStatus
from loragate.adapter_store.audit.log import AuditLog
from loragate.adapter_store.blobs.blobs import StoredAdapter, TenantBlobs
from loragate.adapter_store.tables.adapters import AdapterRow, AdapterVersionRow
from loragate.peft_format.digest import StreamDigest
from loragate.peft_format.errors import AdapterRejected

log = logging.getLogger(__name__)


class CorruptBlob(OSError):
    """The bytes do not match their digest; the message says how."""


async def verified(stored: StoredAdapter, digest: str) -> AsyncIterator[bytes]:
    """Yield the tensors. Raise CorruptBlob before the last chunk if they, or the config, do not match `digest`."""
    held: bytes | None = None
    try:
        found = StreamDigest(stored.config_json, stored.size_bytes)
        async for chunk in stored.tensors:
            if held is not None:
                yield held
            await asyncio.to_thread(found.feed, chunk)
            held = chunk
        value = found.value()
    except AdapterRejected as rejected:
        raise CorruptBlob(rejected.message) from None
    if value != digest:
        raise CorruptBlob(f"their digest is {value}")
    if held is not None:
        yield held


async def find_damage(blobs: TenantBlobs, digest: str) -> str | None:
    """Read the bytes again and return their fault; None: a transient fault. Raise LookupError, OSError."""
    try:
        async for _ in verified(await blobs.open(digest), digest):
            pass
    except CorruptBlob as damage:
        return str(damage)
    return None


class Quarantine:
    """Part of a TenantScope: quarantines and releases versions by digest."""

    def __init__(self, session: AsyncSession, blobs: TenantBlobs, audit: AuditLog) -> None:
        self._session = session
        self._blobs = blobs
        self._audit = audit

    async def take(self, digest: str, reason: str) -> int:
        """Move the bytes to quarantine; return the number of versions that used them."""
        versions = await self._set_status(digest, VersionStatus.READY, VersionStatus.QUARANTINED, reason)
        await self._blobs.set_aside(digest)
        return versions

    async def release(self, digest: str) -> int:
        """Release the versions of a digest whose bytes are correct again; return their number."""
        return await self._set_status(digest, VersionStatus.QUARANTINED, VersionStatus.READY, None)

    async def _set_status(self, digest: str, old: VersionStatus, new: VersionStatus, reason: str | None) -> int:
        row, adapter = AdapterVersionRow, AdapterRow
        change = (
            update(row)
            .where(row.digest == digest, row.status == old.value, row.deleted_at.is_(None))
            .values(status=new.value, reason=reason)
            .returning(row.adapter_id, row.version)
        )
        versions = (await self._session.execute(change)).all()
        for adapter_id, version in versions:
            name = (await self._session.scalars(select(adapter.name).where(adapter.id == adapter_id))).one()
            verb = "quarantine" if new is VersionStatus.QUARANTINED else "release"
            facts = {"digest": digest, "reason": reason}
            await self._audit.record(f"adapter_version.{verb}", f"adapter_version:{name}:{version}", after=facts)
        return len(versions)
