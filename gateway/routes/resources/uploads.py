"""/v1/uploads, as in OpenAI's API: files in parts, so that a dropped connection costs no more than one part."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response

from loragate.adapter_store.files.uploads import MAX_PART_BYTES
from loragate.gateway.dependencies.idempotency_key import OnlyOnce
from loragate.gateway.dependencies.json_body import JsonBody
from loragate.gateway.dependencies.requirements import By, FileKeeper
from loragate.gateway.dependencies.services import Use
from loragate.gateway.http.disconnect import supervise
from loragate.gateway.http.envelope import json_response
from loragate.gateway.objects.files import Upload, UploadPart, UploadPartList
from loragate.gateway.openapi.responses import describes
from loragate.gateway.operations import files as actions
from loragate.gateway.schemas.resources.uploads import PART_FORM, UploadComplete, UploadCreate
from loragate.gateway.uploads.spool import receive_data

router = APIRouter(prefix="/v1/uploads", tags=["files"])


@router.post("")
@describes(Upload, errors=(409,))
async def create_upload(
    caller: FileKeeper,
    by: By,
    body: Annotated[UploadCreate, Depends(JsonBody(UploadCreate))],
    once: OnlyOnce,
    use: Use,
) -> Response:
    """Create an upload. Its `bytes` count against the tenant's storage from now on. It expires an hour after its last
    part."""
    return (await actions.create_upload(use, caller, by, body, once)).response()


@router.get("/{upload_id}")
@describes(Upload)
async def get_upload(upload_id: str, caller: FileKeeper, use: Use) -> Response:
    """Get an upload."""
    return json_response(await actions.get_upload(use, caller, upload_id))


@router.post("/{upload_id}/parts")
@describes(UploadPart, form=PART_FORM, errors=(429,))
async def add_upload_part(
    upload_id: str, caller: FileKeeper, by: By, request: Request, once: OnlyOnce, use: Use
) -> Response:
    """Add a part. Send a multipart form with `data`, at most 64 MiB. Parts may be sent in any order and in parallel; if
    in doubt whether a part was received, send it again, and name the right ones in `complete`."""
    async with (
        actions.part_space(use, caller, upload_id) as space,
        receive_data(request, MAX_PART_BYTES, use.config, space) as content,
    ):
        return (await actions.add_part(use, caller, by, upload_id, content, once)).response()


@router.get("/{upload_id}/parts")
@describes(UploadPartList)
async def list_upload_parts(upload_id: str, caller: FileKeeper, use: Use) -> Response:
    """List the parts received so far, to resume an interrupted upload."""
    return json_response(await actions.list_parts(use, caller, upload_id))


@router.post("/{upload_id}/complete")
@describes(Upload, errors=(409, 429))
async def complete_upload(
    upload_id: str,
    caller: FileKeeper,
    by: By,
    request: Request,
    body: Annotated[UploadComplete, Depends(JsonBody(UploadComplete))],
    use: Use,
) -> Response:
    """Create the file from these parts, in this order. Repeating the request returns the same file."""
    with use.upload_limiter.acquire(caller.tenant_id):
        work = actions.complete_upload(use, caller, by, upload_id, body)
        return json_response(await supervise(work, request.receive, use.lifecycle))


@router.post("/{upload_id}/cancel")
@describes(Upload, errors=(409,))
async def cancel_upload(upload_id: str, caller: FileKeeper, by: By, use: Use) -> Response:
    """Cancel an upload: its parts are deleted, and no more are accepted."""
    return json_response(await actions.cancel_upload(use, caller, by, upload_id))
