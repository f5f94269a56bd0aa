"""Scopes: the repositories of one transaction, bound to one tenant or to the operator."""

from dataclasses import dataclass

from loragate.adapter_store.adapters.desired_state import DesiredState
from loragate.adapter_store.adapters.repository import AdapterRepository
from loragate.adapter_store.audit.log import AuditLog
from loragate.adapter_store.auth.admin_keys import AdminKeyRepository
from loragate.adapter_store.auth.api_keys import ApiKeyRepository
from loragate.adapter_store.auth.secret_use import SecretRepository
from loragate.adapter_store.batches.admin_batches import AdminBatches
from loragate.adapter_store.batches.lease import BatchLease
from loragate.adapter_store.batches.queue import BatchQueue
from loragate.adapter_store.batches.repository import BatchRepository
from loragate.adapter_store.files.repository import FileRepository
from loragate.adapter_store.files.uploads import FileUploadRepository
from loragate.adapter_store.idempotency import ExpiredResponses, IdempotencyRepository
from loragate.adapter_store.imports.lease import ImportLease
from loragate.adapter_store.imports.repository import ImportRepository
from loragate.adapter_store.jobs.admin_jobs import AdminJobs
from loragate.adapter_store.jobs.lease import JobLease
from loragate.adapter_store.jobs.queue import JobQueue
from loragate.adapter_store.jobs.repository import JobRepository
from loragate.adapter_store.jobs.run_snapshots import RunSnapshots
from loragate.adapter_store.publishing.all_published import PublishedAdapters
from loragate.adapter_store.publishing.publisher import Publisher
from loragate.adapter_store.publishing.quarantine import Quarantine
from loragate.adapter_store.publishing.signing import TenantSignatures
from loragate.adapter_store.responses.conversations import ConversationRepository
from loragate.adapter_store.responses.lease import ResponseLease
from loragate.adapter_store.responses.queue import ResponseQueue
from loragate.adapter_store.responses.referenced_items import ReferencedItems
from loragate.adapter_store.responses.repository import ResponseRepository
from loragate.adapter_store.responses.resealing import Resealing
from loragate.adapter_store.tenants.repository import TenantRepository
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


@dataclass(frozen=True)
class TenantScope:
    """Repositories bound to one tenant; none of their methods takes a tenant id."""

    adapters: AdapterRepository
    quarantine: Quarantine
    files: FileRepository
    file_uploads: FileUploadRepository
    imports: ImportRepository
    import_lease: ImportLease
    publisher: Publisher
    signatures: TenantSignatures
    jobs: JobRepository
    job_lease: JobLease
    run_snapshots: RunSnapshots
    batches: BatchRepository
    batch_lease: BatchLease
    responses: ResponseRepository
    response_lease: ResponseLease
    conversations: ConversationRepository
    referenced_items: ReferencedItems
    resealing: Resealing
    training_sessions: TrainingSessions
    training_runs: TrainingRuns
    training_checkpoints: TrainingCheckpoints
    training_samplers: TrainingSamplers
    training_lease: TrainingLease
    training_states: StoredStates
    usage: UsageRepository
    idempotency: IdempotencyRepository


@dataclass(frozen=True)
class AdminScope:
    """Repositories of the operator, or of one tenant's administrator; the latter see that tenant only."""

    tenants: TenantRepository
    keys: ApiKeyRepository
    admin_keys: AdminKeyRepository
    secrets: SecretRepository
    published: PublishedAdapters
    desired: DesiredState
    job_queue: JobQueue
    jobs: AdminJobs
    batch_queue: BatchQueue
    batches: AdminBatches
    response_queue: ResponseQueue
    training_queue: TrainingQueue
    training_runs: AdminTrainingRuns
    audit: AuditLog
    idempotency: IdempotencyRepository
    expired_responses: ExpiredResponses
    usage: UsageRepository
    settlement: UsageSettlement
