"""What a transaction may touch: one tenant's things, or the operator's."""

from dataclasses import dataclass

from loragate.adapter_store.adapters import AdapterRepository
from loragate.adapter_store.all_jobs import AllJobs
from loragate.adapter_store.api_keys import ApiKeyRepository
from loragate.adapter_store.audit import AuditLog
from loragate.adapter_store.damage import Quarantine
from loragate.adapter_store.desired_state import DesiredState
from loragate.adapter_store.file_uploads import FileUploadRepository
from loragate.adapter_store.files import FileRepository
from loragate.adapter_store.import_work import ImportWork
from loragate.adapter_store.imports import ImportRepository
from loragate.adapter_store.job_queue import JobQueue
from loragate.adapter_store.job_work import JobWork
from loragate.adapter_store.jobs import JobRepository
from loragate.adapter_store.kept_runs import KeptRuns
from loragate.adapter_store.publications import Publications
from loragate.adapter_store.published import PublishedAdapters
from loragate.adapter_store.replies import Replies
from loragate.adapter_store.tenants import TenantRepository
from loragate.adapter_store.usage import UsageRepository
from loragate.adapter_store.usage_settlement import UsageSettlement


@dataclass(frozen=True)
class TenantScope:
    """Repositories bound to one tenant; none of their methods takes a tenant's id."""

    adapters: AdapterRepository
    quarantine: Quarantine
    files: FileRepository
    file_uploads: FileUploadRepository
    imports: ImportRepository
    import_work: ImportWork
    publications: Publications
    jobs: JobRepository
    job_work: JobWork
    kept_runs: KeptRuns
    usage: UsageRepository
    replies: Replies


@dataclass(frozen=True)
class AdminScope:
    """The operator's repositories, or those of one tenant's administrator, which see that tenant only."""

    tenants: TenantRepository
    keys: ApiKeyRepository
    published: PublishedAdapters
    desired: DesiredState
    job_queue: JobQueue
    jobs: AllJobs
    audit: AuditLog
    replies: Replies
    usage: UsageRepository
    settlement: UsageSettlement
