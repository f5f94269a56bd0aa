"""/v1/training_runs: the runs of the training API, for people and programs that watch them."""

from typing import Annotated

from fastapi import APIRouter, Query, Response

from loragate.adapter_store.database.page import DEFAULT_LIMIT, MAX_LIMIT
from loragate.gateway.dependencies.requirements import Trainer
from loragate.gateway.dependencies.services import Use
from loragate.gateway.http.envelope import json_response
from loragate.gateway.objects.common import list_object
from loragate.gateway.objects.training import (
    TrainingRunDetails,
    TrainingRunList,
    training_run_details,
    training_run_object,
)
from loragate.gateway.openapi.responses import describes

router = APIRouter(prefix="/v1/training_runs", tags=["training"])

_LOSSES = 1000

After = Annotated[str | None, Query(max_length=128)]
Limit = Annotated[int, Query(ge=1, le=MAX_LIMIT)]


@router.get("")
@describes(TrainingRunList)
async def list_training_runs(caller: Trainer, use: Use, after: After = None, limit: Limit = DEFAULT_LIMIT) -> Response:
    """List the runs of the training API, newest first."""
    async with use.store.tenant(caller.tenant_id) as scope:
        page = await scope.training_runs.page(after=after, limit=limit)
    return json_response(list_object([training_run_object(run) for run in page], has_more=page.has_more))


@router.get("/{run_id}")
@describes(TrainingRunDetails)
async def get_training_run(run_id: str, caller: Trainer, use: Use) -> Response:
    """Get a run with the losses of its last thousand requests."""
    async with use.store.tenant(caller.tenant_id) as scope:
        run = await scope.training_runs.get(run_id)
        losses = await scope.training_runs.losses(run_id, _LOSSES)
    return json_response(training_run_details(run, losses))
