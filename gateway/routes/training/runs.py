"""Training runs and their checkpoints."""

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response
from starlette.responses import StreamingResponse

from loragate.adapter_store.blobs.blobs import CONFIG_FILE
from loragate.adapter_store.scopes import TenantScope
from loragate.adapter_store.timestamps import rfc3339
from loragate.adapter_store.training.objects import Checkpoint, CheckpointKind, CheckpointPath, TrainingRun
from loragate.gateway.dependencies.json_body import JsonBody
from loragate.gateway.dependencies.requirements import By, Trainer, public
from loragate.gateway.dependencies.services import Use
from loragate.gateway.errors import NotFound
from loragate.gateway.http.envelope import json_response
from loragate.gateway.objects.training import checkpoint_object, cursor_object, run_object
from loragate.gateway.operations.training_commands import weights_of
from loragate.gateway.schemas.training.runs import CheckpointLifetime, WeightsInfo
from loragate.gateway.training.downloads import FILES, LIFETIME_SECONDS, Download

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


@router.get("/training_runs/{run_id}/checkpoints/{kind}/{checkpoint}/external_weights_urls")
async def external_weights_urls(
    run_id: str, kind: str, checkpoint: str, caller: Trainer, request: Request, use: Use
) -> Response:
    """Return links to the files of an external checkpoint, which need no key and are valid for a quarter of an hour."""
    path = _path(run_id, kind, checkpoint)
    async with use.store.tenant(caller.tenant_id) as scope:
        found = await scope.training_checkpoints.get(str(path), param="checkpoint_id")
    if found.path.kind is not CheckpointKind.EXTERNAL:
        raise NotFound("Only external weights are downloaded: call save_weights_external.", code="unsupported")
    expires_at = int(time.time()) + LIFETIME_SECONDS
    links = {file: use.downloads.token(Download(caller.tenant_id, found.digest, file), expires_at) for file in FILES}
    urls = {file: str(request.url_for("download", token=token)) for file, token in links.items()}
    return json_response({"urls": urls, "expires": rfc3339(datetime.fromtimestamp(expires_at, UTC))})


@router.get("/downloads/{token}", dependencies=[public])
async def download(token: str, use: Use) -> Response:
    """Return the file of a signed link."""
    wanted = use.downloads.read(token)
    try:
        stored = await use.store.open_adapter(wanted.tenant_id, wanted.digest)
    except (LookupError, OSError):
        raise NotFound("The file does not exist any more.", code="link_invalid") from None
    if wanted.file == CONFIG_FILE:
        return Response(stored.config_json, media_type="application/json")
    length = {"content-length": str(stored.size_bytes)}
    return StreamingResponse(stored.tensors, headers=length, media_type="application/octet-stream")


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
        raise NotFound("The checkpoint does not exist.", param="checkpoint_id", code="checkpoint_not_found")
    return path


def _objects(checkpoints: Sequence[Checkpoint]) -> list[dict[str, Any]]:
    return [checkpoint_object(each) for each in checkpoints]


async def _run(scope: TenantScope, run: TrainingRun, base_model: str, owner: str) -> dict[str, Any]:
    checkpoints, _ = await scope.training_checkpoints.list(run.id, offset=0, limit=_MAX_LISTED)
    last: dict[CheckpointKind, Checkpoint] = {}
    for each in checkpoints:
        last.setdefault(each.path.kind, each)
    return run_object(run, base_model, owner, last)
