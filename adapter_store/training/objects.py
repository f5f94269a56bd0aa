"""What the training API works on: sessions, runs, commands, checkpoints, samplers and samples."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

SESSION_LIFETIME = timedelta(minutes=5)
"""A session without a heartbeat expires after this time."""

GAP_PATIENCE = timedelta(minutes=6)
"""Commands wait for an earlier one this long; clients repeat a request for five minutes."""

_CHECKPOINT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_PATH = "tinker://"
_RUN = ":train:"


class RunStatus(StrEnum):
    ACTIVE = "active"
    FAILED = "failed"  # it could not be created
    PAUSED = "paused"  # by an operator
    ENDED = "ended"  # with its session, or by an operator


class CommandKind(StrEnum):
    CREATE = "create_model"
    LOAD = "load_weights"
    FORWARD_BACKWARD = "forward_backward"
    OPTIM_STEP = "optim_step"
    SAVE_STATE = "save_weights"
    SAVE_SAMPLER = "save_weights_for_sampler"
    SAVE_EXTERNAL = "save_weights_external"


class RequestStatus(StrEnum):
    """States of a command, or of a request for samples."""

    WAITING = "waiting"
    DONE = "done"
    FAILED = "failed"


class ErrorCategory(StrEnum):
    """Whose error it is."""

    USER = "user"
    SERVER = "server"


class CheckpointKind(StrEnum):
    """The kinds of checkpoints, as they are named in a path."""

    STATE = "weights"  # weights and moments, to train on
    SAMPLER = "sampler_weights"  # a version of an adapter
    EXTERNAL = "external_weights"  # to download


@dataclass(frozen=True, slots=True)
class TrainingSession:
    """A client's session. `seen_at` is its last heartbeat."""

    id: str
    key_id: str
    display_name: str | None
    tags: tuple[str, ...]
    user_metadata: Mapping[str, Any]
    created_at: datetime
    seen_at: datetime
    finished_at: datetime | None


@dataclass(frozen=True, slots=True)
class TrainingRun:
    """A run. `settings` are those of its adapter; `next_seq` is the number of the command that is run next."""

    id: str
    session_id: str
    key_id: str
    status: RunStatus
    rank: int | None
    settings: Mapping[str, Any]
    user_metadata: Mapping[str, Any]
    next_seq: int
    gradients_failed: bool
    steps: int
    trained_tokens: int
    snapshot_seq: int | None
    snapshot_file: str | None
    worker: str | None
    created_at: datetime
    used_at: datetime


@dataclass(frozen=True, slots=True)
class OwnedRun:
    """A run and its tenant, for the operator."""

    tenant_id: str
    run: TrainingRun


@dataclass(frozen=True, slots=True)
class Loss:
    """The loss of the forward_backward with this number: the sum over the tokens that it was computed for."""

    seq: int
    loss: float
    tokens: int


@dataclass(frozen=True, slots=True)
class Command:
    """A command that waits, or that is run again. `payload` is the request's body."""

    seq: int
    kind: CommandKind
    payload: bytes
    status: RequestStatus


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a request, or its error."""

    status: RequestStatus
    result: bytes = b""
    error: str = ""
    category: ErrorCategory = ErrorCategory.SERVER
    kind: CommandKind | None = None  # None for samples
    loss: float | None = None  # the next two: of a forward_backward
    tokens: int | None = None

    @classmethod
    def done(cls, result: bytes) -> "Outcome":
        return cls(RequestStatus.DONE, result)

    @classmethod
    def failed(cls, error: str, category: ErrorCategory = ErrorCategory.USER) -> "Outcome":
        return cls(RequestStatus.FAILED, error=error, category=category)


@dataclass(frozen=True, slots=True)
class CheckpointPath:
    """`tinker://{run}/{kind}/{name}`; in place of the run there may be an adapter, whose alias or version `name` is."""

    run_id: str
    kind: CheckpointKind
    name: str

    def __str__(self) -> str:
        return f"{_PATH}{self.run_id}/{self.checkpoint_id}"

    @property
    def checkpoint_id(self) -> str:
        """The checkpoint within its run."""
        return f"{self.kind}/{self.name}"

    @property
    def adapter(self) -> str | None:
        """The adapter, if this is not a run's checkpoint."""
        return None if _RUN in self.run_id or self.kind is CheckpointKind.EXTERNAL else self.run_id

    @property
    def served_name(self) -> str:
        """The name in requests of the adapter's version, or of its alias."""
        return f"{self.run_id}{':' if self.name.isdigit() else '@'}{self.name}"

    @classmethod
    def parse(cls, path: str) -> "CheckpointPath | None":
        """Return the parts of a path; None if it is none."""
        parts = path.removeprefix(_PATH).split("/")
        if not path.startswith(_PATH) or len(parts) != 3 or parts[1] not in [*CheckpointKind]:
            return None
        return cls(parts[0], CheckpointKind(parts[1]), parts[2]) if is_checkpoint_name(parts[2]) else None


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A named checkpoint. `digest` is its adapter's; `state_file` holds weights and moments, if it has them."""

    path: CheckpointPath
    digest: str
    size_bytes: int
    created_at: datetime
    expires_at: datetime | None
    user_metadata: Mapping[str, str]
    state_file: str | None = None
    adapter: str | None = None
    version: int | None = None


@dataclass(frozen=True, slots=True)
class Sampler:
    """A sampling session. Without a digest it samples from the base model."""

    id: str
    session_id: str
    model_path: str | None
    adapter: str | None
    version: int | None
    digest: str | None
    size_bytes: int


def is_checkpoint_name(name: str) -> bool:
    """Return whether a checkpoint may have this name."""
    return _CHECKPOINT_NAME.fullmatch(name) is not None


def run_id_of(session_id: str, number: int) -> str:
    """Return the id of a session's run, which clients compute, too."""
    return f"{session_id}{_RUN}{number}"


def sampler_id_of(session_id: str, number: int) -> str:
    """Return the id of a session's sampler."""
    return f"{session_id}:sample:{number}"


def request_id_of(owner_id: str, seq: int) -> str:
    """Return the id of a request: a command of a run, or a request to a sampler."""
    return f"{owner_id}:{seq}"


def parse_request_id(request_id: str) -> tuple[str, int] | None:
    """Return the run or the sampler, and the number of the request; None if it cannot be a request's id."""
    owner, _, seq = request_id.rpartition(":")
    if not owner or len(owner) > 128 or not seq.isascii() or not seq.isdigit() or len(seq) > 19:
        return None
    return owner, int(seq)
