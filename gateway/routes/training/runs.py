"""Training runs and their checkpoints."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Response

from loragate.adapter_store.errors import NotFound
from loragate.adapter_store.scopes import TenantScope
from loragate.adapter_store.training.objects import Checkpoint, CheckpointKind, CheckpointPath, TrainingRun
from loragate.gateway.dependencies.json_body import JsonBody
from loragate.gateway.dependencies.requirements import By, Trainer
from loragate.gateway.dependencies.services import Use
from loragate.gateway.http.envelope import json_response
from loragate.gateway.objects.training import checkpoint_object, cursor_object, run_object
from loragate.gateway.operations.training_commands import weights_of
from loragate.gateway.schemas.training.runs import CheckpointLifetime, WeightsInfo

router = APIRouter(prefix="/api/v1", tags=["training"], include_in_schema=False)

_MAX_LISTED = 1000
Limit = Annotated[int, Query(ge=1, le=_MAX_LISTED)]
Offset = Annotated[int, Query(ge=0, lt=1 << 31)]


@router.get("/training_runs")
async def list_runs(caller: Trainer, use: Use, limit: Limit = 20, offset: Offset = 0) -> Response:
    """List runs, newest first."""
    async with use.store.tenant(caller.tenant_id) as scope:
        runs, total = await scope.training_runs.list(offset=offset, limit=limit)
        objects = [await _run(scope, run, use.link.base.id, caller.tenant_name) for run in runs]
    return json_response({"training_runs": objects, "cursor": cursor_object(offset, limit, total)})


@router.get("/training_runs/{run_id}")
async def get_run(run_id: str, caller: Trainer, use: Use) -> Response:
    """Get a run."""
    async with use.store.tenant(caller.tenant_id) as scope:
        run = await scope.training_runs.get(run_id)
        described = await _run(scope, run, use.link.base.id, caller.tenant_name)
    return json_response(described)


@router.get("/training_runs/{run_id}/checkpoints")
async def list_checkpoints_of_run(run_id: str, caller: Trainer, use: Use) -> Response:
    """List a run's checkpoints, newest first."""
    async with use.store.tenant(caller.tenant_id) as scope:
        await scope.training_runs.get(run_id)
        found, _ = await scope.training_checkpoints.list(run_id, offset=0, limit=_MAX_LISTED)
    return json_response({"checkpoints": _objects(found), "cursor": None})


@router.get("/checkpoints")
async def list_checkpoints(caller: Trainer, use: Use, limit: Limit = 100, offset: Offset = 0) -> Response:
    """List the checkpoints of all runs, newest first."""
    async with use.store.tenant(caller.tenant_id) as scope:
        found, total = await scope.training_checkpoints.list(None, offset=offset, limit=limit)
    return json_response({"checkpoints": _objects(found), "cursor": cursor_object(offset, limit, total)})


@router.delete("/training_runs/{run_id}/checkpoints/{kind}/{checkpoint}", status_code=204)
async def delete_checkpoint(run_id: str, kind: str, checkpoint: str, caller: Trainer, by: By, use: Use) -> Response:
    """Delete a checkpoint. A version of an adapter that it became stays, until it is deleted there."""
    async with use.store.tenant(caller.tenant_id, write=True, by=by) as scope:
        await scope.training_checkpoints.delete(_path(run_id, kind, checkpoint))
    return Response(status_code=204)


@router.put("/training_runs/{run_id}/checkpoints/{kind}/{checkpoint}/ttl", status_code=204)
async def set_lifetime(
    run_id: str,
    kind: str,
    checkpoint: str,
    caller: Trainer,
    by: By,
    body: Annotated[CheckpointLifetime, Depends(JsonBody(CheckpointLifetime))],
    use: Use,
) -> Response:
    """Set when a checkpoint expires."""
    lifetime = None if body.ttl_seconds is None else timedelta(seconds=body.ttl_seconds)
    async with use.store.tenant(caller.tenant_id, write=True, by=by) as scope:
        await scope.training_checkpoints.set_lifetime(_path(run_id, kind, checkpoint), lifetime)
    return Response(status_code=204)


@router.post("/weights_info")
async def weights_info(
    caller: Trainer, body: Annotated[WeightsInfo, Depends(JsonBody(WeightsInfo))], use: Use
) -> Response:
    """Describe the weights of a path."""
    weights = await weights_of(use, caller, body.tinker_path, "tinker_path")
    settings: Mapping[str, Any] = {}
    if weights.run_id is not None:
        async with use.store.tenant(caller.tenant_id) as scope:
            settings = (await scope.training_runs.get(weights.run_id)).settings
    trained = {name: settings.get(name) for name in ("train_unembed", "train_mlp", "train_attn")}
    return json_response(
        {
            "base_model": use.link.base.id,
            "optimizer_config": {"type": "adamw"},
            "is_lora": True,
            "lora_rank": settings.get("rank"),
            **trained,
        }
    )


def _path(run_id: str, kind: str, name: str) -> CheckpointPath:
    path = CheckpointPath.parse(f"tinker://{run_id}/{kind}/{name}")
    if path is None:
        raise NotFound("The checkpoint does not exist.", code="checkpoint_not_found", param="checkpoint_id")
    return path


def _objects(checkpoints: Sequence[Checkpoint]) -> list[dict[str, Any]]:
    return [checkpoint_object(each) for each in checkpoints]


async def _run(scope: TenantScope, run: TrainingRun, base_model: str, owner: str) -> dict[str, Any]:
    checkpoints, _ = await scope.training_checkpoints.list(run.id, offset=0, limit=_MAX_LISTED)
    last: dict[CheckpointKind, Checkpoint] = {}
    for each in checkpoints:
        last.setdefault(each.path.kind, each)
    return run_object(run, base_model, owner, last)
