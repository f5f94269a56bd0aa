"""/v1/imports: adapters that the server fetches from a hub or a bucket."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response

from loragate.adapter_store.database.page import DEFAULT_LIMIT, MAX_LIMIT
from loragate.gateway.dependencies.idempotency_key import OnlyOnce
from loragate.gateway.dependencies.json_body import JsonBody
from loragate.gateway.dependencies.requirements import AdapterReader, AdapterWriter, By
from loragate.gateway.dependencies.services import Use
from loragate.gateway.http.envelope import json_response
from loragate.gateway.objects.imports import AdapterImport, AdapterImportList
from loragate.gateway.openapi.responses import describes
from loragate.gateway.operations import imports as actions
from loragate.gateway.schemas.resources.imports import ImportCreate

router = APIRouter(prefix="/v1/imports", tags=["adapters"])


@router.post("", status_code=201)
@describes(AdapterImport, errors=(409,))
async def create_import(
    caller: AdapterWriter,
    by: By,
    body: Annotated[ImportCreate, Depends(JsonBody(ImportCreate))],
    once: OnlyOnce,
    use: Use,
) -> Response:
    """Have the server fetch an adapter: `hf://organisation/name@<commit>` from the hub. Poll the import for its
    progress. When it is `ready`, it has become the next version of its name, and the alias points to it."""
    return (await actions.create(use, caller, by, body, once)).response()


@router.get("")
@describes(AdapterImportList)
async def list_imports(
    caller: AdapterReader,
    use: Use,
    after: str | None = None,
    limit: Annotated[int, Query(ge=1, le=MAX_LIMIT)] = DEFAULT_LIMIT,
) -> Response:
    """List imports, newest first."""
    return json_response(await actions.list_imports(use, caller, after, limit))


@router.get("/{import_id}")
@describes(AdapterImport)
async def get_import(import_id: str, caller: AdapterReader, use: Use) -> Response:
    """Get an import, with its progress or its result."""
    return json_response(await actions.get(use, caller, import_id))


@router.delete("/{import_id}")
@describes(AdapterImport, errors=(409,))
async def cancel_import(import_id: str, caller: AdapterWriter, by: By, use: Use) -> Response:
    """Cancel an import that is queued or being fetched, and discard what it has fetched. Responds 409 once it is being
    checked or has ended."""
    return json_response(await actions.cancel(use, caller, by, import_id))
