"""From rows to the objects of the training API."""

from typing import Any

import orjson

from loragate.adapter_store.database.clock import database_now
from loragate.adapter_store.tables.training import (
    SampleRow,
    SamplerRow,
    TrainingCheckpointRow,
    TrainingCommandRow,
    TrainingRunRow,
    TrainingSessionRow,
)
from loragate.adapter_store.training.objects import (
    Checkpoint,
    CheckpointKind,
    CheckpointPath,
    CommandKind,
    ErrorCategory,
    Outcome,
    RequestStatus,
    RunStatus,
    Sampler,
    TrainingRun,
    TrainingSession,
)


def as_text(document: Any) -> str:
    """Return a JSON document for a column."""
    return orjson.dumps(document).decode()


def session_of(row: TrainingSessionRow) -> TrainingSession:
    return TrainingSession(
        id=row.id,
        key_id=row.key_id,
        display_name=row.display_name,
        tags=tuple(orjson.loads(row.tags)),
        user_metadata=orjson.loads(row.user_metadata),
        created_at=row.created_at,
        seen_at=row.seen_at,
        finished_at=row.finished_at,
    )


def run_of(row: TrainingRunRow) -> TrainingRun:
    return TrainingRun(
        id=row.id,
        session_id=row.session_id,
        key_id=row.key_id,
        status=RunStatus(row.status),
        rank=row.rank,
        settings=orjson.loads(row.settings),
        user_metadata=orjson.loads(row.user_metadata),
        next_seq=row.next_seq,
        gradients_failed=row.gradients_failed,
        steps=row.steps,
        trained_tokens=row.trained_tokens,
        snapshot_seq=row.snapshot_seq,
        snapshot_file=row.snapshot_file,
        worker=row.worker,
        created_at=row.created_at,
        used_at=row.used_at,
    )


def outcome_of(row: TrainingCommandRow | SampleRow) -> Outcome:
    return Outcome(
        status=RequestStatus(row.status),
        result=row.result or b"",
        error=row.error or "",
        category=ErrorCategory(row.category or ErrorCategory.SERVER),
        kind=CommandKind(row.kind) if isinstance(row, TrainingCommandRow) else None,
    )


def outcome_columns(outcome: Outcome) -> dict[str, Any]:
    """Return the columns that a command and a request for samples have of an outcome."""
    failed = outcome.status is RequestStatus.FAILED
    return {
        "status": outcome.status,
        "result": outcome.result or None,
        "error": outcome.error if failed else None,
        "category": outcome.category if failed else None,
        "finished_at": database_now(),
    }


def checkpoint_of(row: TrainingCheckpointRow) -> Checkpoint:
    return Checkpoint(
        path=CheckpointPath(row.run_id, CheckpointKind(row.kind), row.name),
        digest=row.digest,
        size_bytes=row.size_bytes,
        created_at=row.created_at,
        expires_at=row.expires_at,
        user_metadata=orjson.loads(row.user_metadata),
        state_file=row.state_file,
        adapter=row.adapter,
        version=row.version,
    )


def sampler_of(row: SamplerRow) -> Sampler:
    return Sampler(
        id=row.id,
        session_id=row.session_id,
        model_path=row.model_path,
        adapter=row.adapter,
        version=row.version,
        digest=row.digest,
        size_bytes=row.size_bytes,
    )
