"""Answers about fine-tuning jobs. Times are Unix time in seconds, as in OpenAI's API."""

from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from loragate.gateway.openapi.shapes.common import Count, Digest, Page

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
