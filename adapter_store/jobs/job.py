"""Fine-tuning jobs, as repositories return them."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from loragate.adapter_store.errors import Failure

Document = Mapping[str, Any]


class JobStatus(StrEnum):
    """OpenAI's states of a job; the last three are final."""

    VALIDATING = "validating_files"
    QUEUED = "queued"
    RUNNING = "running"
    PAUSED = "paused"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        """The state is final."""
        return self in (JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.CANCELLED)


class Order(StrEnum):
    """A tenant's command for a job that a worker holds."""

    CANCEL = "cancel"
    PAUSE = "pause"


ORDERED = {Order.CANCEL: JobStatus.CANCELLED, Order.PAUSE: JobStatus.PAUSED}
"""The state of a job in which each command leaves it."""


@dataclass(frozen=True)
class JobStart:
    """The adapter version that a job starts from: the meaning of its `model` when the job was created."""

    adapter_id: str
    name: str
    version: int
    digest: str


@dataclass(frozen=True)
class JobRequest:
    """A tenant's request for a job. `model` is the base's id, or names the adapter version that is `start`."""

    method: str
    model: str
    training_file: str
    validation_file: str | None
    hyperparameters: Document
    suffix: str | None
    seed: int
    metadata: Document
    start: JobStart | None = None


@dataclass(frozen=True)
class Job:
    """A job. `recipe` has the values derived from `hyperparameters` once the files have been read. `evaluation` is that
    of a classifier that was trained, on validation data."""

    id: str
    request: JobRequest
    status: JobStatus
    error: Failure | None
    recipe: Document | None
    fine_tuned_model: str | None
    trained_tokens: int | None
    result_file: str | None
    evaluation: Document | None
    step: int
    steps: int | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


@dataclass(frozen=True)
class OwnedJob:
    """A job as the operator sees it."""

    tenant_id: str
    job: Job


@dataclass(frozen=True)
class TunedModel:
    """The result of a job: `model` is its name in requests, `made_at` when the job ended."""

    model: str
    made_at: datetime


@dataclass(frozen=True)
class JobEvent:
    """An event. `number` counts a job's events from 1; `data` has the figures of a metrics event."""

    number: int
    created_at: datetime
    level: str  # info, warn, error
    type: str  # message, metrics
    message: str
    data: Document


@dataclass(frozen=True)
class JobCheckpoint:
    """A checkpoint of a run; `model` is its name in requests, while it is published."""

    id: str
    step: int
    created_at: datetime
    metrics: Document
    model: str | None
