"""The objects of the training API, as the Tinker SDK reads them."""

from typing import Any

from loragate.adapter_store.timestamps import rfc3339
from loragate.adapter_store.training.objects import Checkpoint, CheckpointKind, Sampler, TrainingRun, TrainingSession

_TYPES = {CheckpointKind.STATE: "training", CheckpointKind.SAMPLER: "sampler", CheckpointKind.EXTERNAL: "external"}


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
