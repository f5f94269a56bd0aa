"""Conversion between rows and batches."""

from collections.abc import Iterable
from dataclasses import asdict

import orjson

from loragate.adapter_store.batches.batch import Batch, BatchError, BatchStatus, BatchTokens
from loragate.adapter_store.tables.batches import BatchRow


def batch_of(row: BatchRow) -> Batch:
    return Batch(
        id=row.id,
        key_id=row.key_id,
        endpoint=row.endpoint,
        input_file=row.input_file,
        completion_window=row.completion_window,
        output_seconds=row.output_seconds,
        metadata=orjson.loads(row.labels),
        status=BatchStatus(row.status),
        ending=None if row.ending is None else BatchStatus(row.ending),
        errors=() if row.errors is None else tuple(BatchError(**each) for each in orjson.loads(row.errors)),
        output_file=row.output_file,
        error_file=row.error_file,
        total=row.total,
        completed=row.completed,
        failed=row.failed,
        tokens=BatchTokens(row.prompt_tokens, row.completion_tokens, row.cached_tokens),
        waits_for=row.waits_for,
        waits_until=row.waits_until,
        created_at=row.created_at,
        expires_at=row.expires_at,
        in_progress_at=row.in_progress_at,
        cancelling_at=row.cancelling_at,
        finalizing_at=row.finalizing_at,
        finished_at=row.finished_at,
    )


def errors_text(errors: Iterable[BatchError]) -> str | None:
    """Return the errors as `batch_of` reads them; None if there are none."""
    stored = [asdict(error) for error in errors]
    return orjson.dumps(stored).decode() if stored else None
