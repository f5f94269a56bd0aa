"""Batches, as repositories return them."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from loragate.adapter_store.usage.record import UsageRecord

MAX_ERRORS = 20  # of one input file
MAX_BATCH_LINES = 50_000
MAX_BATCH_BYTES = 200 << 20
SHORTEST_WINDOW, LONGEST_WINDOW = timedelta(hours=1), timedelta(days=30)


class BatchStatus(StrEnum):
    """OpenAI's states of a batch."""

    VALIDATING = "validating"
    FAILED = "failed"
    IN_PROGRESS = "in_progress"
    FINALIZING = "finalizing"
    COMPLETED = "completed"
    EXPIRED = "expired"
    CANCELLING = "cancelling"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        """The state is final."""
        return self in _ENDS


_ENDS = (BatchStatus.FAILED, BatchStatus.COMPLETED, BatchStatus.EXPIRED, BatchStatus.CANCELLED)
UNFINISHED = tuple(status for status in BatchStatus if not status.ended)


@dataclass(frozen=True)
class BatchError:
    """Why a batch failed: a problem of its input file, at a `line` from 1 and a `param` if it has these."""

    code: str
    message: str
    line: int | None = None
    param: str | None = None


@dataclass(frozen=True)
class BatchRequest:
    """A tenant's request for a batch. `output_seconds` is the lifetime of its files; None: until they are deleted."""

    key_id: str
    endpoint: str
    input_file: str
    completion_window: str
    window: timedelta
    metadata: Mapping[str, str]
    output_seconds: int | None = None


@dataclass(frozen=True)
class BatchTokens:
    """The tokens of a batch's results so far."""

    prompt: int = 0
    completion: int = 0
    cached: int = 0


@dataclass(frozen=True)
class Batch:
    """A batch. `waits_for` says why it does not run before `waits_until`; both are None while it may run."""

    id: str
    key_id: str
    endpoint: str
    input_file: str
    completion_window: str
    output_seconds: int | None
    metadata: Mapping[str, str]
    status: BatchStatus
    ending: BatchStatus | None
    errors: tuple[BatchError, ...]
    output_file: str | None
    error_file: str | None
    total: int
    completed: int
    failed: int
    tokens: BatchTokens
    waits_for: str | None
    waits_until: datetime | None
    created_at: datetime
    expires_at: datetime
    in_progress_at: datetime | None
    cancelling_at: datetime | None
    finalizing_at: datetime | None
    finished_at: datetime | None


@dataclass(frozen=True)
class LineResult:
    """The result of a line: its line of the output file or, if it `failed`, of the error file. `usage` is None if it
    was rejected before any work."""

    number: int
    failed: bool
    result: str
    usage: UsageRecord | None = None
