"""loragate.v1.AdapterService: adapters that the server fetches from elsewhere."""

from collections.abc import AsyncGenerator

from loragate.adapter_store.database.page import DEFAULT_LIMIT
from loragate.gateway.grpc.call import Call
from loragate.gateway.grpc.releases import document_of, once_for
from loragate.gateway.grpc.requests import body_of, parsed
from loragate.gateway.operations import imports as actions
from loragate.gateway.schemas.resources.imports import ImportCreate
from loragate.gateway.schemas.validation import validated
from loragate.v1 import adapters_pb2 as pb


async def import_(call: Call) -> AsyncGenerator[pb.AdapterImport, None]:
    """Answers at once; the fetching goes on."""
    document = body_of(await call.request(lambda raw: parsed(pb.ImportRequest, raw)))
    body, once = validated(ImportCreate, document), once_for(call, "POST /v1/imports")
    result = await actions.create(call.services, call.tenant, call.context.actor, body, once)
    yield pb.AdapterImport(**document_of(call, result))


async def list_imports(call: Call) -> AsyncGenerator[pb.ListImportsResponse, None]:
    """Newest first."""
    request = await call.request(lambda raw: parsed(pb.ListImportsRequest, raw))
    after = request.after if request.HasField("after") else None
    limit = request.limit if request.HasField("limit") else DEFAULT_LIMIT
    yield pb.ListImportsResponse(**await actions.list_imports(call.services, call.tenant, after, limit))


async def get_import(call: Call) -> AsyncGenerator[pb.AdapterImport, None]:
    """How far it is, or how it ended."""
    request = await call.request(lambda raw: parsed(pb.GetImportRequest, raw))
    yield pb.AdapterImport(**await actions.get(call.services, call.tenant, request.id))


async def cancel_import(call: Call) -> AsyncGenerator[pb.AdapterImport, None]:
    """One that still waits or fetches."""
    request = await call.request(lambda raw: parsed(pb.CancelImportRequest, raw))
    yield pb.AdapterImport(**await actions.cancel(call.services, call.tenant, call.context.actor, request.id))
