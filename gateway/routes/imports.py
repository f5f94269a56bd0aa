"""/v1/imports: adapters that the server fetches from elsewhere."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response

from loragate.adapter_store.page import DEFAULT_LIMIT, MAX_LIMIT
from loragate.gateway.auth.requirements import AdapterReader, AdapterWriter, By
from loragate.gateway.http.bodies import JsonBody
from loragate.gateway.http.envelope import json_response
from loragate.gateway.http.idempotency import OnlyOnce
from loragate.gateway.openapi.answers import answers
from loragate.gateway.openapi.shapes.imports import AdapterImport, AdapterImportList
from loragate.gateway.schemas.imports import ImportCreate
from loragate.gateway.services import Use
from loragate.gateway.wire.imports import import_object
from loragate.gateway.wire.lists import list_object

router = APIRouter(prefix="/v1/imports", tags=["adapters"])


@router.post("", status_code=201)
@answers(AdapterImport, refusals=(409,))
async def create_import(
    caller: AdapterWriter,
    by: By,
    body: Annotated[ImportCreate, Depends(JsonBody(ImportCreate))],
    once: OnlyOnce,
    use: Use,
) -> Response:
    """Have the server fetch an adapter: `hf://organisation/name@<commit>` from the hub. Ask for the import to see how
    far it is; when it is `ready` it has become the next version of its name, and the alias has moved."""
    _ = use.link.base  # nothing can be checked before an engine has said what it serves
    use.imports.check(body.source, caller.tenant_id, body.token)
    async with once.attempt(caller.tenant_id, body.model_dump_json(exclude={"token"}).encode()) as attempt:
        if attempt.reply is not None:
            return attempt.reply
        async with use.store.tenant(caller.tenant_id, write=True, by=by) as scope:
            wanted = await scope.imports.create(body.source, body.name, body.alias)
            answer = await attempt.keep(scope.replies, import_object(wanted))
    use.imports.start(use, caller, by, wanted, body.token)
    return answer


@router.get("")
@answers(AdapterImportList)
async def list_imports(
    caller: AdapterReader,
    use: Use,
    after: str | None = None,
    limit: Annotated[int, Query(ge=1, le=MAX_LIMIT)] = DEFAULT_LIMIT,
) -> Response:
    """Newest first."""
    async with use.store.tenant(caller.tenant_id) as scope:
        page = await scope.imports.list(after=after, limit=limit)
    return json_response(list_object([import_object(found) for found in page], has_more=page.has_more))


@router.get("/{import_id}")
@answers(AdapterImport)
async def get_import(import_id: str, caller: AdapterReader, use: Use) -> Response:
    """How far one import is, or how it ended."""
    async with use.store.tenant(caller.tenant_id) as scope:
        return json_response(import_object(await scope.imports.get(import_id)))


@router.delete("/{import_id}")
@answers(AdapterImport, refusals=(409,))
async def cancel_import(import_id: str, caller: AdapterWriter, by: By, use: Use) -> Response:
    """Cancel an import that still waits or fetches; nothing of it stays. 409 once it is checked or has ended."""
    async with use.store.tenant(caller.tenant_id, write=True, by=by) as scope:
        return json_response(import_object(await scope.imports.cancel(import_id)))
