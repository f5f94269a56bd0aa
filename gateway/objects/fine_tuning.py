"""Fine-tuning jobs, in OpenAI's shape: times are whole seconds of Unix time."""

from datetime import UTC, datetime
from typing import Any, Literal, NotRequired, cast

from typing_extensions import TypedDict

from loragate.adapter_store.jobs.job import Job, JobStatus, OwnedJob
from loragate.finetune.data.formats import Method
from loragate.finetune.jobs.hyperparameters import HYPERPARAMETERS
from loragate.gateway.objects.common import Count, Digest, Page, unix_seconds

Auto = Literal["auto"]

Status = Literal["validating_files", "queued", "running", "paused", "succeeded", "failed", "cancelled"]


class JobError(TypedDict):
    """The reason why a job failed."""

    code: str
    message: str
    param: str | None


class JobHyperparameters(TypedDict):
    """The hyperparameters of OpenAI's API. `auto` is replaced by a number when the files are read."""

    n_epochs: Count | Auto
    batch_size: Count | Auto
    learning_rate_multiplier: float | Auto


class JobMethodHyperparameters(JobHyperparameters):
    """All hyperparameters of a job. `auto` is replaced by a value when the files are read."""

    lora_rank: Count | Auto
    lora_alpha: Count | Auto
    lora_dropout: float
    use_rslora: bool
    use_dora: bool
    alora_invocation_tokens: list[int] | None
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
    validation_split: NotRequired[float | Auto]


class JobMethodFields(TypedDict):
    """The settings of a training method."""

    hyperparameters: JobMethodHyperparameters


class JobMethod(TypedDict):
    """The training method. Only the field that `type` names is present."""

    type: Literal["supervised", "dpo", "classify"]
    supervised: NotRequired[JobMethodFields]
    dpo: NotRequired[JobMethodFields]
    classify: NotRequired[JobMethodFields]


class JobLabelEvaluation(TypedDict):
    """One label of a classifier: the validation examples that have it, and how well it is predicted."""

    label: str
    examples: Count
    precision: float
    recall: float
    f1: float


class JobEvaluation(TypedDict):
    """The result of the method `classify` on its validation examples; null where the problem type has no such figure.
    Rows of `confusion_matrix` are the labels of the examples, columns the predicted ones, in the order of `labels`;
    both are null beyond 100 labels."""

    problem_type: Literal["single_label_classification", "multi_label_classification", "regression"]
    examples: Count
    accuracy: float | None
    macro_f1: float | None
    mse: float | None
    pearson: float | None
    labels: list[JobLabelEvaluation] | None
    confusion_matrix: list[list[Count]] | None


class JobProgress(TypedDict):
    """The number of completed steps, and of all steps; null if the number of all steps is not known."""

    step: Count
    total_steps: Count | None


class JobStartVersion(TypedDict):
    """The adapter version from which a job starts."""

    name: str
    version: Count
    digest: Digest


class FineTuningJob(TypedDict):
    """A fine-tuning job. `fine_tuned_model`, `trained_tokens` and `result_files` are set once it has succeeded, and
    `evaluation` if its method is `classify`. `progress` is null before training starts, `start_version` if the job
    starts from the base model."""

    id: str
    object: Literal["fine_tuning.job"]
    created_at: Count
    error: JobError | None
    estimated_finish: Count | None
    evaluation: JobEvaluation | None
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
    status: Status
    trained_tokens: Count | None
    training_file: str
    validation_file: str | None


class JobList(Page):
    """Newest first."""

    data: list[FineTuningJob]


class AdminJob(FineTuningJob):
    """A job, with the tenant that it belongs to."""

    tenant_id: str


class AdminJobList(Page):
    """Newest first."""

    data: list[AdminJob]


_RECIPE_NAMES = {"n_epochs": "epochs"}


def job_object(job: Job, tenant_id: str) -> FineTuningJob:
    """Return a job. `evaluation`, `progress` and `start_version` are not in OpenAI's API."""
    request, hyperparameters = job.request, _hyperparameters(job)
    start, error = request.start, job.error
    return {
        "id": job.id,
        "object": "fine_tuning.job",
        "created_at": unix_seconds(job.created_at),
        "error": None if error is None else {"code": error.code, "message": error.message, "param": error.param},
        "estimated_finish": _estimated_finish(job),
        "evaluation": cast(JobEvaluation | None, job.evaluation),
        "fine_tuned_model": job.fine_tuned_model,
        "finished_at": unix_seconds(job.finished_at),
        "hyperparameters": {
            "n_epochs": hyperparameters["n_epochs"],
            "batch_size": hyperparameters["batch_size"],
            "learning_rate_multiplier": hyperparameters["learning_rate_multiplier"],
        },
        "integrations": [],
        "metadata": dict(request.metadata) or None,
        "method": _method(request.method, hyperparameters),
        "model": request.model,
        "organization_id": tenant_id,
        "progress": {"step": job.step, "total_steps": job.steps} if job.step or job.steps else None,
        "result_files": [] if job.result_file is None else [job.result_file],
        "seed": request.seed,
        "start_version": None
        if start is None
        else {"name": start.name, "version": start.version, "digest": start.digest},
        "status": job.status.value,
        "trained_tokens": job.trained_tokens if job.status is JobStatus.SUCCEEDED else None,
        "training_file": request.training_file,
        "validation_file": request.validation_file,
    }


def admin_job_object(owned: OwnedJob) -> AdminJob:
    """Return a job as the operator sees it."""
    return {**job_object(owned.job, owned.tenant_id), "tenant_id": owned.tenant_id}


def _method(type_: str, hyperparameters: JobMethodHyperparameters) -> JobMethod:
    return cast(JobMethod, {"type": type_, type_: {"hyperparameters": hyperparameters}})


def _hyperparameters(job: Job) -> JobMethodHyperparameters:
    """Return the values requested; once the files are read, with the values used in place of `auto`."""
    values = {**HYPERPARAMETERS[Method(job.request.method)]().model_dump(mode="json"), **job.request.hyperparameters}
    if job.recipe is not None:
        if values["learning_rate_multiplier"] == "auto":
            values["learning_rate_multiplier"] = 1.0
        values = {name: job.recipe.get(_RECIPE_NAMES.get(name, name), value) for name, value in values.items()}
    return cast(JobMethodHyperparameters, values)


def _estimated_finish(job: Job) -> int | None:
    """Estimate the end, in Unix time, at the speed of the completed steps."""
    if job.status is not JobStatus.RUNNING or job.started_at is None or not job.steps or not job.step:
        return None
    now = datetime.now(UTC)
    return unix_seconds(now + (now - job.started_at) / job.step * (job.steps - job.step))
