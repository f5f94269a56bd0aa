"""The store: SQL is the truth, bytes are beside it."""

import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta

from loragate.adapter_store.adapters.desired_state import DesiredState
from loragate.adapter_store.adapters.repository import AdapterRepository
from loragate.adapter_store.audit.actor import SYSTEM, Actor
from loragate.adapter_store.audit.log import AuditLog
from loragate.adapter_store.auth.api_keys import ApiKeyRepository
from loragate.adapter_store.auth.authentication import Authenticator
from loragate.adapter_store.auth.credentials import KeyHasher
from loragate.adapter_store.auth.installation import check_secret_key
from loragate.adapter_store.auth.principal import Authentication
from loragate.adapter_store.base_model.manifests import Manifests
from loragate.adapter_store.blobs.blobs import Blobs, StoredAdapter, TenantBlobs
from loragate.adapter_store.database.database import Database
from loragate.adapter_store.database.schema import require_current
from loragate.adapter_store.errors import StoreError
from loragate.adapter_store.files.repository import FileRepository
from loragate.adapter_store.files.uploads import FileUploadRepository
from loragate.adapter_store.idempotency import IdempotencyRepository
from loragate.adapter_store.imports.lease import ImportLease
from loragate.adapter_store.imports.repository import ImportRepository
from loragate.adapter_store.jobs.admin_jobs import AdminJobs
from loragate.adapter_store.jobs.lease import JobLease
from loragate.adapter_store.jobs.queue import JobQueue
from loragate.adapter_store.jobs.repository import JobRepository
from loragate.adapter_store.jobs.run_snapshots import RunSnapshots
from loragate.adapter_store.notices.notices import LocalNotices, Notices
from loragate.adapter_store.publishing.all_published import PublishedAdapters
from loragate.adapter_store.publishing.publisher import Publisher
from loragate.adapter_store.publishing.quarantine import CorruptBlob, Quarantine, find_damage, verified
from loragate.adapter_store.publishing.staging import Stage
from loragate.adapter_store.scopes import AdminScope, TenantScope
from loragate.adapter_store.sweep import DEFAULT_GRACE, DEFAULT_RETENTION, SweepReport, sweep
from loragate.adapter_store.tenants.repository import TenantRepository, tenant_not_found
from loragate.adapter_store.usage.repository import UsageRepository
from loragate.adapter_store.usage.settlement import UsageSettlement
from loragate.v1 import engine_pb2

log = logging.getLogger(__name__)


class Store:
    """One per process. Every method may raise Unavailable (the database is away) besides what it names."""

    def __init__(
        self, database: Database, blobs: Blobs, secret_key: bytes, notices: Notices, retention: timedelta
    ) -> None:
        self.blobs = blobs
        self.notices = notices
        self._database = database
        self._secret_key = secret_key
        self._retention = retention
        self._hasher = KeyHasher(secret_key)
        self._authenticator = Authenticator(database, self._hasher)
        self._manifests = Manifests(database)
        self._stage = Stage()
        self.on_damage: Callable[[], None] = lambda: None

    @classmethod
    async def open(
        cls,
        database_url: str,
        blob_url: str,
        secret_key: bytes,
        notices: Notices | None = None,
        *,
        retention: timedelta = DEFAULT_RETENTION,
    ) -> "Store":
        """Raises Invalid (the URL), SchemaMismatch (before `upgrade`), WrongSecretKey, Unavailable.

        Without `notices` other processes are not told of changes. What is deleted can be restored for as long as it
        is `retention`.
        """
        database = Database(database_url)
        try:
            await require_current(database)
            async with database.operator(write=True) as session:
                await check_secret_key(session, secret_key)
            return cls(
                database=database,
                blobs=Blobs(blob_url),
                secret_key=secret_key,
                notices=notices or LocalNotices(),
                retention=retention,
            )
        except BaseException:
            await database.close()
            raise

    async def close(self) -> None:
        await self._database.close()

    @asynccontextmanager
    async def tenant(self, tenant_id: str, *, write: bool = False, by: Actor = SYSTEM) -> AsyncIterator[TenantScope]:
        """One transaction on one tenant's things: committed at the end of the block, rolled back on an error.

        Reading scopes refuse to write. Writing scopes of one tenant take turns, so keep them short; one whose
        tenant is gone raises NotFound at its first statement. Neither holds a connection before that. The audit
        log names `by` as who did it. Whoever subscribed to the notices hears of changes before this returns.
        """
        blobs = self._blobs_of(tenant_id)
        opened = self._database.tenant(tenant_id, write=write)
        async with self._announcing(tenant_id) as changed, opened as session:
            audit = AuditLog(session, by, changed)
            adapters = AdapterRepository(session, audit, self._retention)
            files = FileRepository(session, blobs.pieces, audit)
            job_lease = JobLease(session)
            yield TenantScope(
                adapters=adapters,
                quarantine=Quarantine(session, blobs, audit),
                files=files,
                file_uploads=FileUploadRepository(session, blobs.pieces, files, audit),
                imports=ImportRepository(session, self._manifests, audit),
                import_lease=ImportLease(session),
                publisher=Publisher(
                    session=session,
                    adapters=adapters,
                    blobs=blobs,
                    stage=self._stage,
                    manifests=self._manifests,
                    audit=audit,
                ),
                jobs=JobRepository(session, audit),
                job_lease=job_lease,
                run_snapshots=RunSnapshots(session, blobs.pieces, job_lease),
                usage=UsageRepository(session),
                idempotency=IdempotencyRepository(session, self._secret_key),
            )

    def _blobs_of(self, tenant_id: str) -> TenantBlobs:
        try:
            return self.blobs.of(tenant_id)
        except LookupError:
            raise tenant_not_found() from None

    @asynccontextmanager
    async def admin(
        self, *, write: bool = False, by: Actor = SYSTEM, within: str | None = None
    ) -> AsyncIterator[AdminScope]:
        """One transaction on the operator's things, in the same way; `within` a tenant it reaches no other's."""
        opened = self._database.operator(write=write) if within is None else self._database.tenant(within, write=write)
        async with self._announcing() as changed, opened as session:
            audit = AuditLog(session, by, changed)
            yield AdminScope(
                tenants=TenantRepository(session, audit),
                keys=ApiKeyRepository(session, self._hasher, audit),
                published=PublishedAdapters(session),
                desired=DesiredState(session, audit),
                job_queue=JobQueue(session),
                jobs=AdminJobs(session),
                audit=audit,
                idempotency=IdempotencyRepository(session, self._secret_key),
                usage=UsageRepository(session),
                settlement=UsageSettlement(session),
            )

    @asynccontextmanager
    async def _announcing(self, own: str = "") -> AsyncIterator[set[str]]:
        """Announces the tenants that are put in there ("" is `own`); an error of the commit may hide that it went
        through."""
        changed: set[str] = set()
        try:
            yield changed
        finally:
            for tenant_id in changed:
                await self.notices.announce(tenant_id or own)

    async def authenticate(self, key: str) -> Authentication | None:
        """None for anything that is not, or no longer, a key of this installation."""
        return await self._authenticator.authenticate(key)

    async def set_admin_key(self, key: str) -> None:
        """Replaces the admin key: 24 to 256 printable characters, else Invalid."""
        await self._authenticator.set_admin_key(key)

    async def ensure_admin_key(self, given: str | None) -> str | None:
        """Sets the given key; without one makes one at the first call ever, and returns it that once."""
        return await self._authenticator.ensure_admin_key(given)

    async def publish_manifest(self, manifest: engine_pb2.Manifest) -> None:
        """Keeps what the engine says about its base model."""
        await self._manifests.publish(manifest)

    async def manifest(self) -> engine_pb2.Manifest | None:
        """What an engine last said about its base model; None before the first time."""
        return await self._manifests.current()

    async def open_adapter(self, tenant_id: str, digest: str) -> StoredAdapter:
        """The bytes of a published adapter, also of a deleted version until the sweep.

        Raises LookupError when they are not there, OSError (also while iterating) when they cannot be read. They are
        checked while they are read: what is damaged ends in `CorruptBlob` before its last chunk, and in quarantine.
        """
        stored = await self.blobs.of(tenant_id).open(digest)
        return replace(stored, tensors=self._verified(tenant_id, digest, stored))

    async def _verified(self, tenant_id: str, digest: str, stored: StoredAdapter) -> AsyncIterator[bytes]:
        try:
            async for chunk in verified(stored, digest):
                yield chunk
        except CorruptBlob:
            await self._quarantine(tenant_id, digest)
            raise

    async def _quarantine(self, tenant_id: str, digest: str) -> None:
        """Unless it was a fault on the way: they are read once more."""
        try:
            reason = await find_damage(self.blobs.of(tenant_id), digest)
            if reason is None:
                return
            async with self.tenant(tenant_id, write=True) as scope:
                versions = await scope.quarantine.take(digest, reason)
        except (StoreError, LookupError, OSError) as error:
            log.warning("cannot put %s of %s into quarantine: %s", digest, tenant_id, error)
        else:
            log.error("%s of %s is damaged, %d versions are in quarantine: %s", digest, tenant_id, versions, reason)
            self.on_damage()

    def read_pieces(self, tenant_id: str, pieces: Sequence[str]) -> AsyncIterator[bytes]:
        """The bytes of a file, from what `files.pieces` said of it. Raises Unavailable while iterating."""
        return self._blobs_of(tenant_id).pieces.read(pieces)

    async def sweep(self, grace: timedelta = DEFAULT_GRACE, retention: timedelta | None = None) -> SweepReport:
        """Reclaims bytes that nothing needs and nobody has touched for `grace`, and gives up what was being published
        then. What was deleted stays for as long as it can be restored, or else for `retention`."""
        async with self.admin() as admin:
            tenants = await admin.published.tenants_with_abandoned(grace)
        for tenant_id in tenants:
            async with self.tenant(tenant_id, write=True) as scope:
                await scope.publisher.reject_abandoned(grace)
        return await sweep(self._database, self.blobs, grace, self._retention if retention is None else retention)
