"""The publisher: the steps from an upload to a version."""

import asyncio
from collections.abc import Coroutine, Iterable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import BinaryIO

from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.adapters.adapter import DEFAULT_ALIAS, AdapterVersion, VersionStatus
from loragate.adapter_store.adapters.aliases import AliasMoves
from loragate.adapter_store.adapters.description import EMPTY_DESCRIPTION, described
from loragate.adapter_store.adapters.lineage import UPLOADED, Lineage
from loragate.adapter_store.adapters.repository import AdapterRepository
from loragate.adapter_store.adapters.versions import find_adapter
from loragate.adapter_store.audit.log import AuditLog
from loragate.adapter_store.base_model.manifests import Manifests
from loragate.adapter_store.blobs.blobs import TenantBlobs
from loragate.adapter_store.database.tenant_session import tenant_of
from loragate.adapter_store.errors import NotTried, StoreError, Unavailable
from loragate.adapter_store.imports.lease import claim_version
from loragate.adapter_store.imports.rows import Import
from loragate.adapter_store.journal import Journal
from loragate.adapter_store.names import check_adapter_name, check_alias_name, could_be_version
from loragate.adapter_store.publishing.deferred import (
    MAX_ATTEMPTS,
    TRY,
    Deferred,
    defer,
    discard,
    find_deferred,
    reschedule,
    take,
)
from loragate.adapter_store.publishing.probe import Probe
from loragate.adapter_store.publishing.quarantine import Quarantine
from loragate.adapter_store.publishing.registration import (
    CUT_OFF,
    abandoned,
    is_recorded,
    make_ready,
    record_blob,
    register,
    reject,
)
from loragate.adapter_store.publishing.signing import TenantSignatures
from loragate.adapter_store.publishing.staging import Stage, StagedAdapter, opened
from loragate.adapter_store.quotas import check_new_adapter, check_quotas, check_rank, check_storage, limits_of
from loragate.adapter_store.timestamps import utc_now
from loragate.v1 import engine_pb2

_PAUSE = timedelta(seconds=10)  # between two tries of a version


class Publisher:
    """Part of a writing TenantScope."""

    def __init__(
        self,
        session: AsyncSession,
        adapters: AdapterRepository,
        blobs: TenantBlobs,
        stage: Stage,
        manifests: Manifests,
        audit: AuditLog,
        journal: Journal,
        signatures: TenantSignatures,
    ) -> None:
        self._session = session
        self._adapters = adapters
        self._blobs = blobs
        self._stage = stage
        self._manifests = manifests
        self._audit = audit
        self._journal = journal
        self._signatures = signatures

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
        signature: bytes | None = None,
        trained_here: bool = False,
        may_wait: bool = False,
        wanted_by: Import | None = None,
    ) -> AdapterVersion:
        """Check the two files against the base model, store them and make them the adapter's next version.

        `alias` then points at that version only, unless a later one was first. Nothing is visible before all steps,
        including `probe`, are complete. It must be the first call in its scope: it takes several transactions, and its
        long steps hold no connection. `tensors` is a path or a seekable open file, read in a thread. Equal content
        that is published twice becomes two versions that share their bytes. `tags` and `description` replace the
        adapter's. If no engine is available and it `may_wait`, the result is `verifying`, and `finish` completes it
        later; the same holds if it is `wanted_by` an import whose process dies. `signature` is the content of
        `model.sig`; an adapter that was `trained_here` has none.

        Raise Invalid, AdapterInvalid and Conflict (`quota_exceeded`), then nothing is stored; StorageFull and
        Unavailable.
        """
        assert not self._session.in_transaction(), "publish must be the first call in its scope"
        manifest = await self._manifests.required()
        check_adapter_name(name, base_model=manifest.model_id)
        check_alias_name(alias)
        tags = None if tags is None else tuple(tags)
        described(EMPTY_DESCRIPTION, tags, description)
        policy = await self._signatures.policy()
        await self._session.commit()
        with opened(tensors) as file:
            if trained_here:
                signer = policy.trainer()
            else:
                signer = await self._stage.signer_of(policy, signature, config_json, file)
            staged = await self._store(name, config_json, file, manifest)
        registered = await self._register(name, staged, lineage, signer)
        wanted = Deferred(registered, staged, alias, tags, description)
        if wanted_by is not None:
            await claim_version(self._session, wanted_by, registered)
            await defer(self._session, wanted, TRY)
        await self._session.commit()
        try:
            await self._journal.cover_number(registered.version)
            await probe(tenant_of(self._session) or "", staged)
        except NotTried as error:
            if may_wait:
                return await self._defer(wanted)
            await self._reject(registered, error.message)
            raise
        except StoreError as error:
            await self._reject(registered, error.message)
            raise
        except asyncio.CancelledError:
            left = self._reject(registered, CUT_OFF) if wanted_by is None else self._reschedule(wanted)
            await _to_its_end(left)
            raise
        if wanted_by is not None:
            await discard(self._session, registered.adapter_id, registered.version)
        return await self._complete(wanted)

    async def finish(self, adapter_id: str, version: int, probe: Probe) -> AdapterVersion | None:
        """Try a version that waits; afterwards it is ready or rejected. None: it is finished, or being tried elsewhere.

        Like `publish`, it must be the first call in its scope. Raise NotTried if there is still no engine.
        """
        assert not self._session.in_transaction(), "finish must be the first call in its scope"
        deferred = await take(self._session, adapter_id, version)
        await self._session.commit()
        if deferred is None:
            return None
        try:
            await probe(tenant_of(self._session) or "", deferred.staged)
        except NotTried:
            await reschedule(self._session, deferred, _PAUSE, answered=False)
            await self._session.commit()
            raise
        except StoreError as error:
            return await self._fail(deferred, error)
        await discard(self._session, adapter_id, version)
        return await self._complete(deferred)

    async def awaited(self, name: str, version: int) -> AdapterVersion | None:
        """Return a version that waits for an engine, or that was rejected."""
        return await find_deferred(self._session, name, version) if could_be_version(version) else None

    async def give_up(self, name: str, version: int) -> AdapterVersion | None:
        """Reject a version that waits, because its tenant deleted it; None if there is no such version."""
        found = await self.awaited(name, version)
        if found is None or found.status is not VersionStatus.VERIFYING:
            return None
        await self._reject(found, "its tenant deleted it")
        return found

    async def reject_abandoned(self, age: timedelta) -> None:
        """Reject publications that were registered at least that long ago and that no process will finish."""
        for registered in await abandoned(self._session, utc_now() - age):
            await self._reject(registered, CUT_OFF)

    async def _store(
        self, name: str, config_json: bytes, file: BinaryIO, manifest: engine_pb2.Manifest
    ) -> StagedAdapter:
        """Check the two files, and store them once the quotas allow it: until then they are only in `file`."""
        staged = await self._stage.check(config_json, file, manifest)
        limits = await limits_of(self._session)
        check_rank(limits, staged.rank)
        if await find_adapter(self._session, name) is None:
            await check_new_adapter(self._session, limits)
        await record_blob(self._session, staged.digest, staged.size_bytes + len(config_json))
        await check_storage(self._session)
        await self._session.commit()
        size_bytes = await self._blobs.put(staged.digest, config_json, file)
        return replace(staged, size_bytes=size_bytes)

    async def _register(self, name: str, staged: StagedAdapter, lineage: Lineage, signer: str | None) -> AdapterVersion:
        registered = await register(self._session, name, staged, lineage, signer)
        await check_quotas(self._session, await limits_of(self._session))
        recorded = await is_recorded(self._session, staged.digest)
        if not recorded or not await self._blobs.has(staged.digest):
            # A sweep removed it. It needs the lock that this scope now holds, so this cannot happen again.
            raise Unavailable("A sweep removed the upload before it was registered; send it again.")
        return registered

    async def _defer(self, wanted: Deferred) -> AdapterVersion:
        await discard(self._session, wanted.version.adapter_id, wanted.version.version)
        await defer(self._session, wanted)
        facts = {"digest": wanted.version.digest, "alias": wanted.alias}
        await self._audit.record("adapter_version.defer", _target(wanted.version), after=facts)
        return wanted.version

    async def _reschedule(self, wanted: Deferred) -> None:
        await reschedule(self._session, wanted, timedelta(0), answered=False)
        await self._session.commit()

    async def _fail(self, deferred: Deferred, error: StoreError) -> AdapterVersion:
        """Reject a version after an engine answered, or retry it if the answer was not about the adapter."""
        if isinstance(error, Unavailable) and deferred.attempts + 1 < MAX_ATTEMPTS:
            await reschedule(self._session, deferred, _PAUSE, answered=True)
            return deferred.version
        await self._reject(deferred.version, error.message)
        return replace(deferred.version, status=VersionStatus.REJECTED, reason=error.message)

    async def _complete(self, wanted: Deferred) -> AdapterVersion:
        ready = await self._make_ready(wanted.version, wanted.alias)
        if wanted.tags is not None or wanted.description is not None:
            await self._adapters.update(ready.name, tags=wanted.tags, description=wanted.description)
        return ready

    async def _make_ready(self, registered: AdapterVersion, alias: str) -> AdapterVersion:
        await make_ready(self._session, registered)
        await Quarantine(self._session, self._blobs, self._audit).release(registered.digest)
        facts = {"digest": registered.digest, "rank": registered.rank, "size_bytes": registered.size_bytes}
        facts |= {"signer": registered.signer} if registered.signer else {}
        await self._audit.record("adapter_version.create", _target(registered), after=facts)
        moves = AliasMoves(self._session, self._audit)
        await moves.to_new(registered.adapter_id, registered.name, alias, registered.version)
        return replace(registered, status=VersionStatus.READY)

    async def _reject(self, registered: AdapterVersion, reason: str) -> None:
        await reject(self._session, registered, reason)
        await discard(self._session, registered.adapter_id, registered.version)
        facts = {"digest": registered.digest, "reason": reason}
        await self._audit.record("adapter_version.reject", _target(registered), after=facts)
        await self._session.commit()


async def _to_its_end(work: Coroutine[None, None, None]) -> None:
    """Await `work` to its end, even if the calling task is cancelled, repeatedly."""
    task = asyncio.ensure_future(work)
    while not task.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait((task,))
    with suppress(StoreError):  # then the sweep cleans up
        task.result()


def _target(version: AdapterVersion) -> str:
    return f"adapter_version:{version.name}:{version.version}"
