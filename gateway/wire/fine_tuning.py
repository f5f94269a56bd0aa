"""Fine-tuning jobs, their events and their checkpoints, in OpenAI's shapes: times are whole seconds of Unix time."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from loragate.adapter_store.jobs.job import Job, JobCheckpoint, JobEvent, JobStatus, OwnedJob
from loragate.finetune.jobs.hyperparameters import DpoHyperparameters, Hyperparameters
from loragate.gateway.wire.common import unix_seconds

_OPENAIS = ("n_epochs", "batch_size", "learning_rate_multiplier")
_OF_RECIPE = {"n_epochs": "epochs"}
_FIGURES = {
    "steps": "total_steps",
    "token_accuracy": "train_mean_token_accuracy",
    "valid_token_accuracy": "valid_mean_token_accuracy",
}


def job_object(job: Job, tenant_id: str) -> dict[str, Any]:
    """OpenAI's fields, and ours: `progress`, and what the job goes on from."""
    request, hyperparameters = job.request, hyperparameters_of(job)
    return {
        "id": job.id,
        "object": "fine_tuning.job",
        "created_at": unix_seconds(job.created_at),
        "error": job.error and {"code": job.error.code, "message": job.error.message, "param": job.error.param},
        "estimated_finish": _estimated_finish(job),
        "fine_tuned_model": job.fine_tuned_model,
        "finished_at": unix_seconds(job.finished_at),
        "hyperparameters": {name: hyperparameters[name] for name in _OPENAIS},
        "integrations": [],
        "metadata": dict(request.metadata) or None,
        "method": {"type": request.method, request.method: {"hyperparameters": hyperparameters}},
        "model": request.model,
        "organization_id": tenant_id,
        "progress": {"step": job.step, "total_steps": job.steps} if job.step or job.steps else None,
        "result_files": [] if job.result_file is None else [job.result_file],
        "seed": request.seed,
        "start_version": request.start
        and {"name": request.start.name, "version": request.start.version, "digest": request.start.digest},
        "status": job.status.value,
        "trained_tokens": job.trained_tokens if job.status is JobStatus.SUCCEEDED else None,
        "training_file": request.training_file,
        "validation_file": request.validation_file,
    }


def admin_job_object(owned: OwnedJob) -> dict[str, Any]:
    """The same as the operator sees it."""
    return {**job_object(owned.job, owned.tenant_id), "tenant_id": owned.tenant_id}


def hyperparameters_of(job: Job) -> dict[str, Any]:
    """As asked for; once the files are read, with numbers in place of what was open."""
    kind = DpoHyperparameters if job.request.method == "dpo" else Hyperparameters
    asked = {**kind().model_dump(mode="json"), **job.request.hyperparameters}
    if job.recipe is None:
        return asked
    if asked["learning_rate_multiplier"] == "auto":
        asked["learning_rate_multiplier"] = 1.0
    return {name: job.recipe.get(_OF_RECIPE.get(name, name), value) for name, value in asked.items()}


def event_object(event: JobEvent, job_id: str) -> dict[str, Any]:
    """`data` has a metrics event's figures."""
    return {
        "id": event_id(job_id, event.number),
        "object": "fine_tuning.job.event",
        "created_at": unix_seconds(event.created_at),
        "level": event.level,
        "message": event.message,
        "type": event.type,
        "data": _figures(event.data),
    }


def event_id(job_id: str, number: int) -> str:
    """Of a job's event; jobs number their own."""
    return f"ftevent-{job_id.removeprefix('ftjob-')}-{number}"


def checkpoint_object(checkpoint: JobCheckpoint, job: Job) -> dict[str, Any]:
    """`fine_tuned_model_checkpoint` is the name that answers."""
    return {
        "id": checkpoint.id,
        "object": "fine_tuning.job.checkpoint",
        "created_at": unix_seconds(checkpoint.created_at),
        "fine_tuned_model_checkpoint": checkpoint.model,
        "fine_tuning_job_id": job.id,
        "metrics": {"step": checkpoint.step, **_figures(checkpoint.metrics)},
        "step_number": checkpoint.step,
    }


def _figures(figures: Mapping[str, Any]) -> dict[str, Any]:
    return {_FIGURES.get(name, name): value for name, value in figures.items()}


def _estimated_finish(job: Job) -> int | None:
    """As if the rest went as fast as what is done."""
    if job.status is not JobStatus.RUNNING or job.started_at is None or not job.steps or not job.step:
        return None
    now = datetime.now(UTC)
    return unix_seconds(now + (now - job.started_at) / job.step * (job.steps - job.step))
