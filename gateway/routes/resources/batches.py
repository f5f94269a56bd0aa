"""/v1/batches, as in OpenAI's API."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response

from loragate.adapter_store.database.page import DEFAULT_LIMIT, MAX_LIMIT
from loragate.gateway.dependencies.idempotency_key import OnlyOnce
from loragate.gateway.dependencies.json_body import JsonBody
from loragate.gateway.dependencies.requirements import By, Inference
from loragate.gateway.dependencies.services import Use
from loragate.gateway.http.envelope import json_response
from loragate.gateway.objects.batches import Batch, BatchList
from loragate.gateway.openapi.responses import describes
from loragate.gateway.operations import batches as actions
from loragate.gateway.schemas.resources.batches import BatchCreate

router = APIRouter(prefix="/v1/batches", tags=["batches"])


@router.post("")
@describes(Batch, errors=(404, 409))
async def create_batch(
    caller: Inference,
    by: By,
    body: Annotated[BatchCreate, Depends(JsonBody(BatchCreate))],
    once: OnlyOnce,
    use: Use,
) -> Response:
    """Create a batch: a file of requests that are run when there is time. Upload the file first, with the purpose
    `batch`."""
    return (await actions.create(use, caller, by, body, once)).response()


@router.get("")
@describes(BatchList)
async def list_batches(
    caller: Inference,
    use: Use,
    after: Annotated[str | None, Query(max_length=64)] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_LIMIT)] = DEFAULT_LIMIT,
) -> Response:
    """List batches, newest first."""
    return json_response(await actions.list_batches(use, caller, after, limit))


@router.get("/{batch_id}")
@describes(Batch)
async def get_batch(batch_id: str, caller: Inference, use: Use) -> Response:
    """Get a batch, with the number of lines that have a result."""
    return json_response(await actions.get(use, caller, batch_id))


@router.post("/{batch_id}/cancel")
@describes(Batch, errors=(409,))
async def cancel_batch(batch_id: str, caller: Inference, by: By, use: Use) -> Response:
    """Cancel a batch. It is `cancelled` once the results that it has are in its files. Responds 409 if it has ended, or
    all its lines have been run."""
    return json_response(await actions.cancel(use, caller.tenant_id, by, batch_id))
