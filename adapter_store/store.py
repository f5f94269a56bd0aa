"""The store: SQL is the source of truth, and the bytes are stored beside it."""

import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime, timedelta

from loragate.adapter_store.adapters.desired_state import DesiredState
from loragate.adapter_store.adapters.repository import AdapterRepository
from loragate.adapter_store.audit.actor import SYSTEM, Actor
from loragate.adapter_store.audit.log import AuditLog, RecordedChange
from loragate.adapter_store.auth.admin_keys import AdminKeyRepository
from loragate.adapter_store.auth.api_keys import ApiKeyRepository
from loragate.adapter_store.auth.authentication import Authenticator
from loragate.adapter_store.auth.credentials import KeyFormat, KeyHasher, Plausibility
from loragate.adapter_store.auth.installation import Installation, open_installation
from loragate.adapter_store.auth.principal import Authentication, TenantPrincipal
from loragate.adapter_store.auth.secret_key import SecretKeys
from loragate.adapter_store.auth.secret_use import SecretRepository
from loragate.adapter_store.base_model.manifests import Manifests
from loragate.adapter_store.batches.admin_batches import AdminBatches
from loragate.adapter_store.batches.lease import BatchLease
from loragate.adapter_store.batches.queue import BatchQueue
from loragate.adapter_store.batches.repository import BatchRepository
from loragate.adapter_store.blobs.blobs import Blobs, StoredAdapter, TenantBlobs
from loragate.adapter_store.database.clock import earliest_time
from loragate.adapter_store.database.database import Database
from loragate.adapter_store.database.schema import require_compatible
from loragate.adapter_store.errors import StoreError
from loragate.adapter_store.files.repository import FileRepository
from loragate.adapter_store.files.uploads import FileUploadRepository
from loragate.adapter_store.fleet.engine_leases import EngineLeases
from loragate.adapter_store.fleet.replica_sets import ReplicaSets
from loragate.adapter_store.idempotency import ExpiredResponses, IdempotencyRepository
from loragate.adapter_store.imports.lease import ImportLease
from loragate.adapter_store.imports.repository import ImportRepository
from loragate.adapter_store.jobs.admin_jobs import AdminJobs
from loragate.adapter_store.jobs.lease import JobLease
from loragate.adapter_store.jobs.queue import JobQueue
from loragate.adapter_store.jobs.repository import JobRepository
from loragate.adapter_store.jobs.run_snapshots import RunSnapshots
from loragate.adapter_store.journal import Journal
from loragate.adapter_store.notices.notices import LocalNotices, Notices
from loragate.adapter_store.publishing.all_published import PublishedAdapters
from loragate.adapter_store.publishing.publisher import Publisher
from loragate.adapter_store.publishing.quarantine import CorruptBlob, Quarantine, find_damage, verified
from loragate.adapter_store.publishing.signing import TenantSignatures
from loragate.adapter_store.publishing.staging import Stage
from loragate.adapter_store.responses.conversations import ConversationRepository
from loragate.adapter_store.responses.lease import ResponseLease
from loragate.adapter_store.responses.queue import ResponseQueue
from loragate.adapter_store.responses.referenced_items import ReferencedItems
from loragate.adapter_store.responses.repository import ResponseRepository
from loragate.adapter_store.responses.resealing import Resealing
from loragate.adapter_store.responses.sealing import TenantSeal
from loragate.adapter_store.scopes import AdminScope, TenantScope
from loragate.adapter_store.signatures.policy import UNSIGNED, SignaturePolicy
from loragate.adapter_store.sweep import DEFAULT_GRACE, DEFAULT_RETENTION, SweepReport, sweep
from loragate.adapter_store.tenants.deletion import finish_deletions
from loragate.adapter_store.tenants.erasure import erase_deleted_tenants
from loragate.adapter_store.tenants.repository import TenantRepository, tenant_not_found
from loragate.adapter_store.training.admin_runs import AdminTrainingRuns
from loragate.adapter_store.training.checkpoints import TrainingCheckpoints
from loragate.adapter_store.training.lease import TrainingLease
from loragate.adapter_store.training.queue import TrainingQueue
from loragate.adapter_store.training.runs import TrainingRuns
from loragate.adapter_store.training.samplers import TrainingSamplers
from loragate.adapter_store.training.sessions import TrainingSessions
from loragate.adapter_store.training.stored_state import StoredStates
from loragate.adapter_store.usage.repository import UsageRepository
from loragate.adapter_store.usage.settlement import UsageSettlement
from loragate.v1 import engine_pb2

log = logging.getLogger(__name__)


class Store:
    """The facade, one per process. Every method may also raise Unavailable (the database cannot be reached)."""

    def __init__(
        self,
        database: Database,
        blobs: Blobs,
        secret_keys: SecretKeys,
        installation: Installation,
        notices: Notices,
        retention: timedelta,
        signatures: SignaturePolicy,
    ) -> None:
        self.blobs = blobs
        self.notices = notices
        self._database = database
        self._secret_keys = secret_keys
        self._retention = retention
        self._signatures = signatures
        self._key_format = KeyFormat(installation.checksum_key)
        self._hasher = KeyHasher(secret_keys)
        self._authenticator = Authenticator(database, self._key_format, self._hasher, installation.admin_key_hash)
        self._manifests = Manifests(database)
        self.engine_leases = EngineLeases(database)
        self.replica_sets = ReplicaSets(database)
        self._journal = Journal(blobs)
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
        previous_secret_keys: Sequence[bytes] = (),
        retention: timedelta = DEFAULT_RETENTION,
        min_free: int = 0,
        signatures: SignaturePolicy = UNSIGNED,
    ) -> "Store":
        """Open the store. Raise Invalid (the URL), SchemaMismatch (before `upgrade`), WrongSecretKey, Unavailable.

        What is new is made with `secret_key`; what was made with a previous one stays valid. Without `notices`, other
        processes are not notified of changes. Deleted adapters can be restored within `retention`. Of a local disk,
        `min_free` bytes are left to others. `signatures` is the policy for publishing.
        """
        secret_keys = SecretKeys(secret_key, tuple(previous_secret_keys))
        database = Database(database_url)
        try:
            await require_compatible(database)
            async with database.operator(write=True) as session:
                installation = await open_installation(session, secret_keys)
            return cls(
                database=database,
                blobs=Blobs(blob_url, min_free),
                secret_keys=secret_keys,
                installation=installation,
                notices=notices or LocalNotices(),
                retention=retention,
                signatures=signatures,
            )
        except BaseException:
            await database.close()
            raise

    async def close(self) -> None:
        await self._database.close()

    @asynccontextmanager
    async def tenant(self, tenant_id: str, *, write: bool = False, by: Actor = SYSTEM) -> AsyncIterator[TenantScope]:
        """Open one transaction on one tenant's data: committed at the end of the block, rolled back on an error.

        Reading scopes reject writes. Writing scopes of one tenant are serialized, so keep them short; a writing scope
        of a deleted tenant raises NotFound at its first statement. No scope holds a connection before its first
        statement. The audit log records `by` as the actor. Subscribers of the notices are notified before this returns.
        """
        blobs = self._blobs_of(tenant_id)
        opened = self._database.tenant(tenant_id, write=write)
        async with self._announcing(tenant_id) as changed, opened as session:
            audit = AuditLog(session, by, changed)
            adapters = AdapterRepository(session, audit, self._retention)
            files = FileRepository(session, blobs.pieces, audit)
            job_lease = JobLease(session)
            signatures = TenantSignatures(session, self._signatures)
            states = StoredStates(session, blobs, self._stage)
            seal = TenantSeal(self._secret_keys, tenant_id)
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
                    journal=self._journal,
                    signatures=signatures,
                ),
                signatures=signatures,
                jobs=JobRepository(session, audit),
                job_lease=job_lease,
                run_snapshots=RunSnapshots(session, blobs.pieces, job_lease),
                batches=BatchRepository(session, audit),
                batch_lease=BatchLease(session),
                responses=ResponseRepository(session, audit, seal),
                response_lease=ResponseLease(session, seal),
                conversations=ConversationRepository(session, audit, seal),
                referenced_items=ReferencedItems(session, seal),
                resealing=Resealing(session, seal),
                training_sessions=TrainingSessions(session, audit),
                training_runs=TrainingRuns(session, audit),
                training_checkpoints=TrainingCheckpoints(session, audit, states),
                training_samplers=TrainingSamplers(session),
                training_lease=TrainingLease(session, audit, states),
                training_states=states,
                usage=UsageRepository(session),
                idempotency=IdempotencyRepository(session, self._secret_keys),
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
        """Open one transaction on the operator's data in the same way; `within` a tenant it sees that tenant only."""
        opened = self._database.operator(write=write) if within is None else self._database.tenant(within, write=write)
        written: list[RecordedChange] = []
        async with self._announcing() as changed, opened as session:
            audit = AuditLog(session, by, changed, written)
            keys = ApiKeyRepository(session, self._key_format, self._hasher, audit)
            admin_keys = AdminKeyRepository(session, self._key_format, self._hasher, audit)
            yield AdminScope(
                tenants=TenantRepository(session, audit, self._signatures),
                keys=keys,
                admin_keys=admin_keys,
                secrets=SecretRepository(session, keys, admin_keys, audit),
                published=PublishedAdapters(session),
                desired=DesiredState(session, audit),
                job_queue=JobQueue(session),
                jobs=AdminJobs(session),
                batch_queue=BatchQueue(session),
                batches=AdminBatches(session),
                response_queue=ResponseQueue(session),
                training_queue=TrainingQueue(session),
                training_runs=AdminTrainingRuns(session, audit),
                audit=audit,
                idempotency=IdempotencyRepository(session, self._secret_keys),
                expired_responses=ExpiredResponses(session),
                usage=UsageRepository(session),
                settlement=UsageSettlement(session),
            )
        await self._journal.record(written)

    @asynccontextmanager
    async def _announcing(self, own: str = "") -> AsyncIterator[set[str]]:
        """Announce the tenants that are added to the set ("" is `own`), on errors too: a commit that reports an error
        may have succeeded."""
        changed: set[str] = set()
        try:
            yield changed
        finally:
            for tenant_id in changed:
                await self.notices.announce(tenant_id or own)

    @property
    def secret_id(self) -> str:
        """The id of the primary secret."""
        return self._secret_keys.ids[0]

    def check_key(self, key: str) -> Plausibility:
        """Return the result for a key as far as it is known without a query."""
        return self._authenticator.check(key)

    async def authenticate(self, key: str) -> Authentication | None:
        """Return the principal of a key; None if it is not, or no longer, a key of this installation."""
        return await self._authenticator.authenticate(key)

    async def principal_of(self, key_id: str) -> TenantPrincipal | None:
        """Return the principal of a tenant's key that was authenticated before, or of the one that it was rotated to;
        None once neither is valid."""
        return await self._authenticator.principal_of(key_id)

    async def renew_key_hashes(self) -> None:
        """Make the hashes of keys that were used since the last time with the primary secret, where they are not."""
        await self._authenticator.rehashing.write()

    async def set_admin_key(self, key: str) -> None:
        """Replace the admin key. Raise Invalid unless it has 24 to 256 printable characters."""
        if await self._authenticator.set_admin_key(key):
            await self._journal.record_admin_key()

    async def ensure_admin_key(self, given: str | None) -> str | None:
        """Set the given admin key. Without one, create a key at the first call ever, and return it only then."""
        if given is not None:
            await self.set_admin_key(given)
            return None
        return await self._authenticator.ensure_admin_key()

    async def publish_manifest(self, manifest: engine_pb2.Manifest) -> None:
        """Store the engine's manifest of its base model."""
        await self._manifests.publish(manifest)

    async def manifest(self) -> engine_pb2.Manifest | None:
        """Return the latest manifest of the base model; None before the first."""
        return await self._manifests.current()

    async def open_adapter(self, tenant_id: str, digest: str) -> StoredAdapter:
        """Return the bytes of a published adapter, also of a deleted version until the sweep.

        Raise LookupError if they do not exist, OSError (also while iterating) if they cannot be read. They are
        checked while they are read: corrupt bytes raise `CorruptBlob` before their last chunk, and are quarantined.
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
        """Quarantine the bytes, unless a second read succeeds: then it was a transient fault."""
        try:
            reason = await find_damage(self.blobs.of(tenant_id), digest)
            if reason is None:
                return
            async with self.tenant(tenant_id, write=True) as scope:
                versions = await scope.quarantine.take(digest, reason)
        except (StoreError, LookupError, OSError) as error:
            log.warning("cannot quarantine %s of %s: %s", digest, tenant_id, error)
        else:
            log.error("%s of %s is corrupt, %d versions are quarantined: %s", digest, tenant_id, versions, reason)
            self.on_damage()

    def read_pieces(self, tenant_id: str, pieces: Sequence[str]) -> AsyncIterator[bytes]:
        """Return the bytes of a file, given its pieces from `files.pieces`. Raise Unavailable while iterating."""
        return self._blobs_of(tenant_id).pieces.read(pieces)

    async def earliest_time(self) -> datetime:
        """Return the time by which old data is removed; see `database.clock`."""
        async with self._database.operator() as session:
            return await earliest_time(session)

    async def sweep(
        self, grace: timedelta = DEFAULT_GRACE, retention: timedelta | None = None, *, listing: bool = True
    ) -> SweepReport:
        """Reclaim bytes that nothing refers to and that are older than `grace`, reject publications that old, and erase
        tenants that were deleted before `retention`.
        Deleted adapters stay for `retention`, by default the time in which they can be restored. Without `listing`,
        only recorded bytes are considered, and nothing is listed."""
        await self._journal.catch_up(self._database)
        await finish_deletions(self._database)
        async with self.admin() as admin:
            tenants = await admin.published.tenants_with_abandoned(grace)
        for tenant_id in tenants:
            async with self.tenant(tenant_id, write=True) as scope:
                await scope.publisher.reject_abandoned(grace)
        kept = self._retention if retention is None else retention
        report = await sweep(self._database, self.blobs, grace, kept, listing=listing)
        await erase_deleted_tenants(self._database, await self.earliest_time() - max(grace, kept))
        await self._database.release_space()
        return report
