"""The nouns of fine-tuning jobs, as repositories return them."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from loragate.adapter_store.errors import Failure

Document = Mapping[str, Any]


class JobStatus(StrEnum):
    """OpenAI's; the last three are a job's ends."""

    VALIDATING = "validating_files"
    QUEUED = "queued"
    RUNNING = "running"
    PAUSED = "paused"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        """Nothing can change any more."""
        return self in (JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.CANCELLED)


class Order(StrEnum):
    """What a tenant wants of a job that a worker holds."""

    CANCEL = "cancel"
    PAUSE = "pause"


@dataclass(frozen=True)
class JobStart:
    """The adapter version that a job goes on from, as its `model` meant it when the job was made."""

    adapter_id: str
    name: str
    version: int
    digest: str


@dataclass(frozen=True)
class JobRequest:
    """What a tenant asked for. `model` is the base's id, or names the adapter version that is `start`."""

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
    """`recipe` are the numbers that `hyperparameters` became, once the files are read."""

    id: str
    request: JobRequest
    status: JobStatus
    error: Failure | None
    recipe: Document | None
    fine_tuned_model: str | None
    trained_tokens: int | None
    result_file: str | None
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
    """What a job has made: `model` is its name in requests, `made_at` when the job ended."""

    model: str
    made_at: datetime


@dataclass(frozen=True)
class JobEvent:
    """`number` counts a job's events from 1. `data` is a metrics event's figures."""

    number: int
    created_at: datetime
    level: str  # info, warn, error
    type: str  # message, metrics
    message: str
    data: Document


@dataclass(frozen=True)
class JobCheckpoint:
    """Of a moment in a run; `model` is the name under which it answers, while it is kept."""

    id: str
    step: int
    created_at: datetime
    metrics: Document
    model: str | None
