"""loragate.v1.BatchService: batches, whose files are uploaded over REST."""

from collections.abc import AsyncGenerator, Mapping
from typing import Any

from loragate.adapter_store.database.page import DEFAULT_LIMIT
from loragate.gateway.grpc.call import Call
from loragate.gateway.grpc.requests import body_from, parse_message
from loragate.gateway.operations import batches as actions
from loragate.gateway.schemas.resources.batches import BatchCreate
from loragate.gateway.schemas.validation import validated
from loragate.v1 import batches_pb2 as pb

_CREATE = "POST /v1/batches"  # the equivalent route of the REST API


async def create(call: Call) -> AsyncGenerator[pb.Batch, None]:
    """Create a batch, once per `idempotency-key`, which REST and gRPC share."""
    document = body_from(await call.request(lambda raw: parse_message(pb.CreateBatchRequest, raw)))
    body, once = validated(BatchCreate, document), call.once(_CREATE)
    result = await actions.create(call.services, call.tenant, call.change(), body, once)
    batch = call.document(result)
    yield _batch(batch)


async def list_batches(call: Call) -> AsyncGenerator[pb.ListBatchesResponse, None]:
    """List batches, newest first."""
    request = await call.request(lambda raw: parse_message(pb.ListBatchesRequest, raw))
    after = request.after if request.HasField("after") else None
    limit = request.limit if request.HasField("limit") else DEFAULT_LIMIT
    page: Mapping[str, Any] = await actions.list_batches(call.services, call.tenant, after, limit)
    yield pb.ListBatchesResponse(**{**page, "data": [_batch(each) for each in page["data"]]})


async def get(call: Call) -> AsyncGenerator[pb.Batch, None]:
    """Return one batch."""
    request = await call.request(lambda raw: parse_message(pb.GetBatchRequest, raw))
    yield _batch(await actions.get(call.services, call.tenant, request.batch_id))


async def cancel(call: Call) -> AsyncGenerator[pb.Batch, None]:
    """Cancel a batch."""
    request = await call.request(lambda raw: parse_message(pb.CancelBatchRequest, raw))
    yield _batch(await actions.cancel(call.services, call.tenant.tenant_id, call.change(), request.batch_id))


def _batch(document: Mapping[str, Any]) -> pb.Batch:
    return pb.Batch(**{**document, "metadata": document["metadata"] or {}})
