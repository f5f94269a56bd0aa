"""What a tenant publishes."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import BinaryIO

from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.adapter import DEFAULT_ALIAS, AdapterVersion, VersionStatus
from loragate.adapter_store.adapters import AdapterRepository
from loragate.adapter_store.alias_moves import AliasMoves
from loragate.adapter_store.audit import AuditLog
from loragate.adapter_store.blobs import TenantBlobs
from loragate.adapter_store.damage import Quarantine
from loragate.adapter_store.description import NOTHING_SAID, described
from loragate.adapter_store.errors import StoreError, Unavailable
from loragate.adapter_store.lineage import UPLOADED, Lineage
from loragate.adapter_store.manifests import Manifests
from loragate.adapter_store.names import check_adapter_name, check_alias_name
from loragate.adapter_store.probe import Probe
from loragate.adapter_store.publishing import CUT_OFF, abandoned, make_ready, register, reject
from loragate.adapter_store.quotas import check_quotas, check_rank, limits_of
from loragate.adapter_store.staging import Stage, StagedAdapter
from loragate.adapter_store.tenancy import tenant_of
from loragate.adapter_store.times import utc_now


class Publications:
    """Part of a TenantScope, which has to be a writing one."""

    def __init__(
        self,
        session: AsyncSession,
        adapters: AdapterRepository,
        blobs: TenantBlobs,
        stage: Stage,
        manifests: Manifests,
        audit: AuditLog,
    ) -> None:
        self._session = session
        self._adapters = adapters
        self._blobs = blobs
        self._stage = stage
        self._manifests = manifests
        self._audit = audit

    async def publish(
        self,
        name: str,
        config_json: bytes,
        tensors: Path | BinaryIO,
        *,
        probe: Probe,
        alias: str = DEFAULT_ALIAS,
        lineage: Lineage = UPLOADED,
        tags: Iterable[str] | None = None,
        description: str | None = None,
    ) -> AdapterVersion:
        """Checks the two files against the base model, stores them and makes them the adapter's next version.

        `alias` then points at that version alone, unless a later one came first. Nothing is visible before all of
        this has happened, `probe` included. It must be the first call in its scope: it takes two transactions, and
        what takes long holds no connection. `tensors` is a path or a seekable open file, read in a thread. What is
        published twice becomes two versions that share their bytes. `tags` and `description` are the adapter's from
        then on.

        Raises Invalid and AdapterInvalid (nothing is kept), Conflict (`quota_exceeded`), StorageFull, Unavailable.
        """
        assert not self._session.in_transaction(), "publish must be the first call in its scope"
        manifest = await self._manifests.required()
        check_adapter_name(name, base_model=manifest.model_id)
        check_alias_name(alias)
        described(NOTHING_SAID, tags, description)
        staged = await self._stage.prepare(config_json, tensors, manifest, self._blobs)
        registered = await self._register(name, staged, lineage)
        try:
            await probe(tenant_of(self._session) or "", staged)
        except StoreError as error:
            await self._reject(registered, error.message)
            raise
        ready = await self._make_ready(registered, alias)
        if tags is not None or description is not None:
            await self._adapters.update(name, tags=tags, description=description)
        return ready

    async def reject_abandoned(self, age: timedelta) -> None:
        """Gives up what nobody finishes any more: publications that were registered at least that long ago."""
        for registered in await abandoned(self._session, utc_now() - age):
            await self._reject(registered, CUT_OFF)

    async def _register(self, name: str, staged: StagedAdapter, lineage: Lineage) -> AdapterVersion:
        limits = await limits_of(self._session)
        check_rank(limits, staged.rank)
        registered = await register(self._session, name, staged, lineage)
        await check_quotas(self._session, limits)
        if not await self._blobs.has(staged.digest):
            # A sweep came between. It needs the lock that this scope holds by now, so none can come again.
            raise Unavailable("The upload was swept away before it was registered; send it again.")
        await self._session.commit()
        return registered

    async def _make_ready(self, registered: AdapterVersion, alias: str) -> AdapterVersion:
        await make_ready(self._session, registered)
        await Quarantine(self._session, self._blobs, self._audit).release(registered.digest)
        facts = {"digest": registered.digest, "rank": registered.rank, "size_bytes": registered.size_bytes}
        await self._audit.record("adapter_version.create", _target(registered), after=facts)
        moves = AliasMoves(self._session, self._audit)
        await moves.to_new(registered.adapter_id, registered.name, alias, registered.version)
        return replace(registered, status=VersionStatus.READY)

    async def _reject(self, registered: AdapterVersion, reason: str) -> None:
        await reject(self._session, registered, reason)
        facts = {"digest": registered.digest, "reason": reason}
        await self._audit.record("adapter_version.reject", _target(registered), after=facts)
        await self._session.commit()


def _target(version: AdapterVersion) -> str:
    return f"adapter_version:{version.name}:{version.version}"
