"""Conversion between rows and fine-tuning jobs."""

import orjson

from loragate.adapter_store.errors import Failure
from loragate.adapter_store.jobs.job import Job, JobCheckpoint, JobEvent, JobRequest, JobStart, JobStatus
from loragate.adapter_store.tables.jobs import JobCheckpointRow, JobEventRow, JobRow


def job_of(row: JobRow) -> Job:
    error = None
    if row.error_code is not None:
        error = Failure(row.error_code, row.error_message or "", row.error_param)
    request = JobRequest(
        method=row.method,
        model=row.model,
        training_file=row.training_file,
        validation_file=row.validation_file,
        hyperparameters=orjson.loads(row.hyperparameters),
        suffix=row.suffix,
        seed=row.seed,
        metadata=orjson.loads(row.labels),
        start=_start_of(row),
    )
    return Job(
        id=row.id,
        request=request,
        status=JobStatus(row.status),
        error=error,
        recipe=None if row.recipe is None else orjson.loads(row.recipe),
        fine_tuned_model=row.fine_tuned_model,
        trained_tokens=row.trained_tokens,
        result_file=row.result_file,
        evaluation=None if row.evaluation is None else orjson.loads(row.evaluation),
        step=row.step,
        steps=row.steps,
        created_at=row.created_at,
        started_at=row.started_at,
        finished_at=row.finished_at,
    )


def _start_of(row: JobRow) -> JobStart | None:
    if row.start_adapter_id is None:
        return None
    assert row.start_name is not None
    assert row.start_version is not None
    assert row.start_digest is not None
    return JobStart(row.start_adapter_id, row.start_name, row.start_version, row.start_digest)


def start_columns(start: JobStart | None) -> dict[str, str | int | None]:
    """Return the columns of a start, which `job_of` reads."""
    if start is None:
        return {}
    return {
        "start_adapter_id": start.adapter_id,
        "start_name": start.name,
        "start_version": start.version,
        "start_digest": start.digest,
    }


def event_of(row: JobEventRow) -> JobEvent:
    return JobEvent(row.number, row.created_at, row.level, row.type, row.message, orjson.loads(row.data))


def checkpoint_of(row: JobCheckpointRow) -> JobCheckpoint:
    return JobCheckpoint(row.id, row.step, row.created_at, orjson.loads(row.metrics), row.model)
