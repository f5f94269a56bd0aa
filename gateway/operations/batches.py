"""Operations on a tenant's batches, for REST and gRPC."""

from loragate.adapter_store.audit.actor import Actor
from loragate.adapter_store.auth.principal import TenantPrincipal
from loragate.adapter_store.batches.batch import MAX_BATCH_BYTES, BatchRequest
from loragate.adapter_store.files.file import File, Purpose
from loragate.adapter_store.limits import TenantLimits
from loragate.gateway.errors import InvalidRequest
from loragate.gateway.http.idempotency import Once, Result
from loragate.gateway.objects.batches import Batch, BatchList, batch_object
from loragate.gateway.objects.common import list_object
from loragate.gateway.operations.files import purposes_of
from loragate.gateway.schemas.resources.batches import BatchCreate
from loragate.gateway.services import Services

_FILE = "input_file_id"


async def create(use: Services, caller: TenantPrincipal, by: Actor, body: BatchCreate, once: Once) -> Result[Batch]:
    """Create a batch. The lines of its file are validated later."""
    async with once.attempt(caller.tenant_id, body.model_dump_json().encode()) as attempt:
        if attempt.earlier is not None:
            return attempt.earlier
        async with use.store.tenant(caller.tenant_id, write=True, by=by) as scope:
            _check_file(await scope.files.get(body.input_file_id, purposes_of(caller), param=_FILE), caller.limits)
            batch = await scope.batches.create(_request(caller, body))
            result = await attempt.keep(scope.idempotency, batch_object(batch), 200)
    use.batches.wake()
    return result


async def list_batches(use: Services, caller: TenantPrincipal, after: str | None, limit: int) -> BatchList:
    """Return a page of batches, newest first."""
    async with use.store.tenant(caller.tenant_id) as scope:
        page = await scope.batches.list(after=after, limit=limit)
    return list_object([batch_object(batch) for batch in page], has_more=page.has_more)


async def get(use: Services, caller: TenantPrincipal, batch_id: str) -> Batch:
    """Return a batch."""
    async with use.store.tenant(caller.tenant_id) as scope:
        return batch_object(await scope.batches.get(batch_id))


async def cancel(use: Services, tenant_id: str, by: Actor, batch_id: str) -> Batch:
    """Cancel a batch: it ends once the results that it has are in its files. Raise Conflict if it is too late."""
    async with use.store.tenant(tenant_id, write=True, by=by) as scope:
        batch = await scope.batches.cancel(batch_id)
    use.batches.wake()
    return batch_object(batch)


def _check_file(file: File, limits: TenantLimits) -> None:
    if file.purpose is not Purpose.BATCH:
        words = f"Invalid '{_FILE}': its purpose is '{file.purpose}'; upload it with the purpose 'batch'."
        raise InvalidRequest(words, param=_FILE, code="invalid_input_file")
    most = min(MAX_BATCH_BYTES, limits.max_batch_bytes if limits.max_batch_bytes is not None else MAX_BATCH_BYTES)
    if file.size_bytes > most:
        words = f"Invalid '{_FILE}': the file has {file.size_bytes} bytes, and a batch may have {most}."
        raise InvalidRequest(words, param=_FILE, code="file_too_large")


def _request(caller: TenantPrincipal, body: BatchCreate) -> BatchRequest:
    return BatchRequest(
        key_id=caller.key_id,
        endpoint=body.endpoint,
        input_file=body.input_file_id,
        completion_window=body.completion_window,
        window=body.window,
        metadata=body.metadata or {},
        output_seconds=None if body.output_expires_after is None else body.output_expires_after.seconds,
    )
