"""Events and checkpoints of fine-tuning jobs, in OpenAI's shapes: times are whole seconds of Unix time."""

from collections.abc import Mapping
from typing import Any, Literal, cast

from typing_extensions import TypedDict

from loragate.adapter_store.jobs import job as stored
from loragate.gateway.objects.common import Count, Page, unix_seconds

Level = Literal["info", "warn", "error"]
EventType = Literal["message", "metrics"]

_METRIC_NAMES = {
    "steps": "total_steps",
    "token_accuracy": "train_mean_token_accuracy",
    "valid_token_accuracy": "valid_mean_token_accuracy",
}


class JobEvent(TypedDict):
    """An event of a job. The `data` of a metrics event holds the metrics of one training step."""

    id: str
    object: Literal["fine_tuning.job.event"]
    created_at: Count
    level: Level
    message: str
    type: EventType
    data: dict[str, Any]


class EventList(Page):
    """Newest first."""

    data: list[JobEvent]


class JobCheckpoint(TypedDict):
    """A checkpoint of a job. `fine_tuned_model_checkpoint` is the model name under which it can be used, or null."""

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


def event_object(event: stored.JobEvent, job_id: str) -> JobEvent:
    """Return an event of the job."""
    return {
        "id": event_id(job_id, event.number),
        "object": "fine_tuning.job.event",
        "created_at": unix_seconds(event.created_at),
        "level": cast(Level, event.level),
        "message": event.message,
        "type": cast(EventType, event.type),
        "data": _renamed(event.data),
    }


def event_id(job_id: str, number: int) -> str:
    """Return the id of the event with this number; each job numbers its own events."""
    return f"ftevent-{job_id.removeprefix('ftjob-')}-{number}"


def checkpoint_object(checkpoint: stored.JobCheckpoint, job: stored.Job) -> JobCheckpoint:
    """Return a checkpoint of the job."""
    return {
        "id": checkpoint.id,
        "object": "fine_tuning.job.checkpoint",
        "created_at": unix_seconds(checkpoint.created_at),
        "fine_tuned_model_checkpoint": checkpoint.model,
        "fine_tuning_job_id": job.id,
        "metrics": {"step": checkpoint.step, **_renamed(checkpoint.metrics)},
        "step_number": checkpoint.step,
    }


def _renamed(metrics: Mapping[str, Any]) -> dict[str, Any]:
    return {_METRIC_NAMES.get(name, name): value for name, value in metrics.items()}
