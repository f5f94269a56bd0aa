"""loragate.v1.AdapterService: imports."""

from collections.abc import AsyncGenerator

from loragate.adapter_store.database.page import DEFAULT_LIMIT
from loragate.gateway.grpc.call import Call
from loragate.gateway.grpc.requests import body_from, parse_message
from loragate.gateway.operations import imports as actions
from loragate.gateway.schemas.resources.imports import ImportCreate
from loragate.gateway.schemas.validation import validated
from loragate.v1 import adapters_pb2 as pb


async def import_(call: Call) -> AsyncGenerator[pb.AdapterImport, None]:
    """Start an import. Respond at once; fetching continues in the background."""
    document = body_from(await call.request(lambda raw: parse_message(pb.ImportRequest, raw)))
    body, once = validated(ImportCreate, document), call.once("POST /v1/imports")
    result = await actions.create(call.services, call.tenant, call.change(), body, once)
    yield pb.AdapterImport(**call.document(result))


async def list_imports(call: Call) -> AsyncGenerator[pb.ListImportsResponse, None]:
    """List imports, newest first."""
    request = await call.request(lambda raw: parse_message(pb.ListImportsRequest, raw))
    after = request.after if request.HasField("after") else None
    limit = request.limit if request.HasField("limit") else DEFAULT_LIMIT
    yield pb.ListImportsResponse(**await actions.list_imports(call.services, call.tenant, after, limit))


async def get_import(call: Call) -> AsyncGenerator[pb.AdapterImport, None]:
    """Return the progress or the outcome of an import."""
    request = await call.request(lambda raw: parse_message(pb.GetImportRequest, raw))
    yield pb.AdapterImport(**await actions.get(call.services, call.tenant, request.id))


async def cancel_import(call: Call) -> AsyncGenerator[pb.AdapterImport, None]:
    """Cancel an import that is waiting or fetching."""
    request = await call.request(lambda raw: parse_message(pb.CancelImportRequest, raw))
    yield pb.AdapterImport(**await actions.cancel(call.services, call.tenant, call.change(), request.id))
