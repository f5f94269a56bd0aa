"""The objects of the training API, as the Tinker SDK reads them."""

from collections.abc import Sequence
from typing import Any, Literal

from typing_extensions import TypedDict

from loragate.adapter_store.timestamps import rfc3339
from loragate.adapter_store.training.objects import (
    Checkpoint,
    CheckpointKind,
    Loss,
    OwnedRun,
    Sampler,
    TrainingRun,
    TrainingSession,
)
from loragate.gateway.objects.common import Count, Moment, Page

_TYPES = {CheckpointKind.STATE: "training", CheckpointKind.SAMPLER: "sampler", CheckpointKind.EXTERNAL: "external"}


class RunLoss(TypedDict):
    """The loss of a request, summed over the `tokens` that it was computed for. `seq` is its number in the run."""

    seq: Count
    loss: float
    tokens: Count


class TrainingRunObject(TypedDict):
    """A run of the training API. `loaded`: a trainer holds it now."""

    id: str
    object: Literal["training_run"]
    session_id: str
    status: Literal["active", "paused", "failed", "ended"]
    rank: int | None
    steps: Count
    trained_tokens: Count
    loaded: bool
    created_at: Moment
    used_at: Moment


class TrainingRunDetails(TrainingRunObject):
    """A run with the losses of its last requests."""

    losses: list[RunLoss]


class AdminTrainingRun(TrainingRunObject):
    """A run, and the tenant whose it is."""

    tenant_id: str


class TrainingRunList(Page):
    """A page of runs."""

    data: list[TrainingRunObject]


class AdminTrainingRunList(Page):
    """A page of all tenants' runs."""

    data: list[AdminTrainingRun]


def training_run_object(run: TrainingRun) -> TrainingRunObject:
    """Return a run as our own API describes it."""
    return {
        "id": run.id,
        "object": "training_run",
        "session_id": run.session_id,
        "status": run.status.value,
        "rank": run.rank,
        "steps": run.steps,
        "trained_tokens": run.trained_tokens,
        "loaded": run.worker is not None,
        "created_at": rfc3339(run.created_at),
        "used_at": rfc3339(run.used_at),
    }


def training_run_details(run: TrainingRun, losses: Sequence[Loss]) -> TrainingRunDetails:
    """Return a run with its losses."""
    found: list[RunLoss] = [{"seq": each.seq, "loss": each.loss, "tokens": each.tokens} for each in losses]
    return {**training_run_object(run), "losses": found}


def admin_training_run(owned: OwnedRun) -> AdminTrainingRun:
    """Return a run with its tenant."""
    return {**training_run_object(owned.run), "tenant_id": owned.tenant_id}


def checkpoint_object(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return a checkpoint; `loragate_model` is the name under which a sampler's is served."""
    served = None if checkpoint.version is None else f"{checkpoint.adapter}:{checkpoint.version}"
    return {
        "checkpoint_id": checkpoint.path.checkpoint_id,
        "checkpoint_type": _TYPES[checkpoint.path.kind],
        "time": rfc3339(checkpoint.created_at),
        "tinker_path": str(checkpoint.path),
        "size_bytes": checkpoint.size_bytes,
        "public": False,
        "user_metadata": dict(checkpoint.user_metadata),
        "expires_at": None if checkpoint.expires_at is None else rfc3339(checkpoint.expires_at),
        "loragate_model": served,
    }


def run_object(run: TrainingRun, base_model: str, owner: str, last: dict[CheckpointKind, Checkpoint]) -> dict[str, Any]:
    """Return a run with its last checkpoints."""
    state, sampler = last.get(CheckpointKind.STATE), last.get(CheckpointKind.SAMPLER)
    return {
        "training_run_id": run.id,
        "base_model": base_model,
        "model_owner": owner,
        "is_lora": True,
        "corrupted": False,
        "lora_rank": run.rank,
        "last_request_time": rfc3339(run.used_at),
        "last_checkpoint": None if state is None else checkpoint_object(state),
        "last_sampler_checkpoint": None if sampler is None else checkpoint_object(sampler),
        "user_metadata": {name: str(value) for name, value in run.user_metadata.items()},
    }


def session_object(session: TrainingSession, runs: list[str], samplers: list[str]) -> dict[str, Any]:
    """Return a session with the ids of its runs and samplers."""
    return {
        "training_run_ids": runs,
        "sampler_ids": samplers,
        "user_metadata": {name: str(value) for name, value in session.user_metadata.items()},
        "display_name": session.display_name,
        "status": "active" if session.finished_at is None else "finished",
    }


def sampler_object(sampler: Sampler, base_model: str) -> dict[str, Any]:
    """Return a sampler."""
    return {"sampler_id": sampler.id, "base_model": base_model, "model_path": sampler.model_path}


def cursor_object(offset: int, limit: int, total: int) -> dict[str, int]:
    """Return the position of a page."""
    return {"offset": offset, "limit": limit, "total_count": total}
