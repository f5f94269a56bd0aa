"""Batches, in OpenAI's shape: times are whole seconds of Unix time."""

from typing import Literal

from typing_extensions import TypedDict

from loragate.adapter_store.batches import batch as stored
from loragate.adapter_store.batches.admin_batches import OwnedBatch
from loragate.adapter_store.batches.batch import BatchStatus
from loragate.gateway.objects.common import Count, Page, unix_seconds
from loragate.gateway.schemas.resources.batches import BatchEndpoint

Status = Literal["validating", "failed", "in_progress", "finalizing", "completed", "expired", "cancelling", "cancelled"]


class BatchError(TypedDict):
    """A problem of the input file, at a line if it is one line's; or why the batch stopped."""

    code: str
    message: str
    line: Count | None
    param: str | None


class BatchErrors(TypedDict):
    """The first problems, at most twenty."""

    object: Literal["list"]
    data: list[BatchError]


class BatchRequestCounts(TypedDict):
    """The number of lines, of those with a result, and of those that failed."""

    total: Count
    completed: Count
    failed: Count


class BatchInputDetails(TypedDict):
    """`cached_tokens`: prompt tokens that were found in the prefix cache."""

    cached_tokens: Count


class BatchUsage(TypedDict):
    """The tokens of all results so far."""

    input_tokens: Count
    input_tokens_details: BatchInputDetails
    output_tokens: Count
    total_tokens: Count


class Batch(TypedDict):
    """A batch. `waits_for` says why it does not run before `waits_until`; both are null while it may run."""

    id: str
    object: Literal["batch"]
    endpoint: BatchEndpoint
    errors: BatchErrors | None
    input_file_id: str
    completion_window: str
    status: Status
    output_file_id: str | None
    error_file_id: str | None
    created_at: Count
    in_progress_at: Count | None
    expires_at: Count
    finalizing_at: Count | None
    completed_at: Count | None
    failed_at: Count | None
    expired_at: Count | None
    cancelling_at: Count | None
    cancelled_at: Count | None
    request_counts: BatchRequestCounts
    usage: BatchUsage
    metadata: dict[str, str] | None
    waits_for: str | None
    waits_until: Count | None


class BatchList(Page):
    """Newest first."""

    data: list[Batch]


class AdminBatch(TypedDict):
    """A batch as the operator sees it: neither its files nor its metadata. A gateway runs it while it is `held`; the
    age of one that waits is counted from `created_at`."""

    id: str
    object: Literal["batch"]
    tenant_id: str
    key_id: str
    endpoint: BatchEndpoint
    completion_window: str
    status: Status
    held: bool
    errors: BatchErrors | None
    created_at: Count
    in_progress_at: Count | None
    expires_at: Count
    finished_at: Count | None
    request_counts: BatchRequestCounts
    usage: BatchUsage
    waits_for: str | None
    waits_until: Count | None


class AdminBatchList(Page):
    """Batches of all tenants, newest first."""

    data: list[AdminBatch]


def batch_object(batch: stored.Batch) -> Batch:
    """Return a batch. `waits_for` and `waits_until` are not in OpenAI's API."""

    def ended_as(status: BatchStatus) -> int | None:
        return unix_seconds(batch.finished_at) if batch.status is status else None

    return {
        "id": batch.id,
        "object": "batch",
        "endpoint": batch.endpoint,  # type: ignore[typeddict-item]
        "errors": _errors(batch),
        "input_file_id": batch.input_file,
        "completion_window": batch.completion_window,
        "status": batch.status.value,
        "output_file_id": batch.output_file,
        "error_file_id": batch.error_file,
        "created_at": unix_seconds(batch.created_at),
        "in_progress_at": unix_seconds(batch.in_progress_at),
        "expires_at": unix_seconds(batch.expires_at),
        "finalizing_at": unix_seconds(batch.finalizing_at),
        "completed_at": ended_as(BatchStatus.COMPLETED),
        "failed_at": ended_as(BatchStatus.FAILED),
        "expired_at": ended_as(BatchStatus.EXPIRED),
        "cancelling_at": unix_seconds(batch.cancelling_at),
        "cancelled_at": ended_as(BatchStatus.CANCELLED),
        "request_counts": {"total": batch.total, "completed": batch.completed, "failed": batch.failed},
        "usage": _usage(batch.tokens),
        "metadata": dict(batch.metadata) or None,
        "waits_for": batch.waits_for,
        "waits_until": unix_seconds(batch.waits_until),
    }


def admin_batch_object(owned: OwnedBatch) -> AdminBatch:
    """Return a batch as the operator sees it."""
    batch = owned.batch
    shown = batch_object(batch)
    return {
        "id": shown["id"],
        "object": "batch",
        "tenant_id": owned.tenant_id,
        "key_id": batch.key_id,
        "endpoint": shown["endpoint"],
        "completion_window": shown["completion_window"],
        "status": shown["status"],
        "held": owned.held,
        "errors": shown["errors"],
        "created_at": shown["created_at"],
        "in_progress_at": shown["in_progress_at"],
        "expires_at": shown["expires_at"],
        "finished_at": unix_seconds(batch.finished_at),
        "request_counts": shown["request_counts"],
        "usage": shown["usage"],
        "waits_for": shown["waits_for"],
        "waits_until": shown["waits_until"],
    }


def _errors(batch: stored.Batch) -> BatchErrors | None:
    if not batch.errors:
        return None
    data: list[BatchError] = [
        {"code": error.code, "message": error.message, "line": error.line, "param": error.param}
        for error in batch.errors
    ]
    return {"object": "list", "data": data}


def _usage(tokens: stored.BatchTokens) -> BatchUsage:
    return {
        "input_tokens": tokens.prompt,
        "input_tokens_details": {"cached_tokens": tokens.cached},
        "output_tokens": tokens.completion,
        "total_tokens": tokens.prompt + tokens.completion,
    }
