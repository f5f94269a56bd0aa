"""Fine-tuning jobs, their events and their checkpoints, in OpenAI's shapes: times are whole seconds of Unix time."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from loragate.adapter_store.jobs import job as stored
from loragate.adapter_store.jobs.job import Job, JobStatus, OwnedJob
from loragate.finetune.jobs.hyperparameters import DpoHyperparameters, Hyperparameters
from loragate.gateway.objects.common import Count, Digest, Page, unix_seconds

Auto = Literal["auto"]

_STATUS = Literal["validating_files", "queued", "running", "paused", "succeeded", "failed", "cancelled"]


class JobError(TypedDict):
    """Why a job failed."""

    code: str
    message: str
    param: str | None


class JobHyperparameters(TypedDict):
    """OpenAI's three. `auto` becomes a number when the files are read."""

    n_epochs: Count | Auto
    batch_size: Count | Auto
    learning_rate_multiplier: float | Auto


class JobMethodHyperparameters(JobHyperparameters):
    """All that a job is trained with."""

    lora_rank: Count | Auto
    lora_alpha: Count | Auto
    lora_dropout: float
    use_rslora: bool
    use_dora: bool
    target_modules: str | list[str]
    quantization: Literal["nf4", "none"]
    max_length: Count | Auto
    packing: bool | Auto
    lr_scheduler: Literal["cosine", "linear", "constant"]
    warmup_ratio: float
    weight_decay: float
    max_grad_norm: float
    early_stopping_patience: Count | None
    streaming: bool
    n_steps: Count | None
    beta: NotRequired[float | Auto]


class JobMethodFields(TypedDict):
    """One method's."""

    hyperparameters: JobMethodHyperparameters


class JobMethod(TypedDict):
    """The field that `type` names is there."""

    type: Literal["supervised", "dpo"]
    supervised: NotRequired[JobMethodFields]
    dpo: NotRequired[JobMethodFields]


class JobProgress(TypedDict):
    """Steps that are done, and all of them."""

    step: Count
    total_steps: Count | None


class JobStartVersion(TypedDict):
    """The adapter version that a job goes on from."""

    name: str
    version: Count
    digest: Digest


class FineTuningJob(TypedDict):
    """`fine_tuned_model`, `trained_tokens` and `result_files` are a succeeded job's. `progress` is null before training
    begins, `start_version` where the job begins with the base model."""

    id: str
    object: Literal["fine_tuning.job"]
    created_at: Count
    error: JobError | None
    estimated_finish: Count | None
    fine_tuned_model: str | None
    finished_at: Count | None
    hyperparameters: JobHyperparameters
    integrations: list[Any]
    metadata: dict[str, str] | None
    method: JobMethod
    model: str
    organization_id: str
    progress: JobProgress | None
    result_files: list[str]
    seed: Count
    start_version: JobStartVersion | None
    status: _STATUS
    trained_tokens: Count | None
    training_file: str
    validation_file: str | None


class JobList(Page):
    """Newest first."""

    data: list[FineTuningJob]


class AdminJob(FineTuningJob):
    """A tenant's job."""

    tenant_id: str


class AdminJobList(Page):
    """Newest first."""

    data: list[AdminJob]


class JobEvent(TypedDict):
    """Something that happened. The `data` of a metrics event are the step's figures."""

    id: str
    object: Literal["fine_tuning.job.event"]
    created_at: Count
    level: Literal["info", "warn", "error"]
    message: str
    type: Literal["message", "metrics"]
    data: dict[str, Any]


class EventList(Page):
    """Newest first."""

    data: list[JobEvent]


class JobCheckpoint(TypedDict):
    """A moment of a run that is kept; `fine_tuned_model_checkpoint` is null where it does not answer."""

    id: str
    object: Literal["fine_tuning.job.checkpoint"]
    created_at: Count
    fine_tuned_model_checkpoint: str | None
    fine_tuning_job_id: str
    metrics: dict[str, float]
    step_number: Count


class CheckpointList(Page):
    """Newest first."""

    data: list[JobCheckpoint]


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


def event_object(event: stored.JobEvent, job_id: str) -> dict[str, Any]:
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


def checkpoint_object(checkpoint: stored.JobCheckpoint, job: Job) -> dict[str, Any]:
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
