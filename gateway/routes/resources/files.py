"""/v1/files, as in OpenAI's API."""

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response
from starlette.responses import StreamingResponse

from loragate.adapter_store.files.file import FileFacts, Purpose
from loragate.adapter_store.files.repository import MAX_LISTED
from loragate.gateway.dependencies.idempotency_key import OnlyOnce
from loragate.gateway.dependencies.requirements import By, FileKeeper
from loragate.gateway.dependencies.services import Use
from loragate.gateway.errors import InvalidRequest
from loragate.gateway.http.bodies import announced_size
from loragate.gateway.http.disconnect import supervise
from loragate.gateway.http.envelope import json_response
from loragate.gateway.http.prefetch_first import prefetch_first
from loragate.gateway.objects.files import DeletedFile, File, FileList
from loragate.gateway.openapi.responses import describes
from loragate.gateway.operations import files as actions
from loragate.gateway.schemas.resources.uploads import FILE_FORM, LINES_FORM
from loragate.gateway.uploads.multipart import Form, FormShape
from loragate.gateway.uploads.spool import receive_data, receive_form
from loragate.gateway.uploads.training_lines import MAX_APPEND_BYTES

router = APIRouter(prefix="/v1/files", tags=["files"])

_FORM_BYTES = 64 << 10  # in addition to the file itself
_ANCHOR, _SECONDS = "expires_after[anchor]", "expires_after[seconds]"
_SHAPE = FormShape({"purpose": 64, "open": 8, _ANCHOR: 64, _SECONDS: 16}, spooled="file")
_PURPOSES = (Purpose.FINE_TUNE, Purpose.ADAPTER, Purpose.BATCH)


@router.post("")
@describes(File, form=FILE_FORM, errors=(429,))
async def create_file(caller: FileKeeper, by: By, request: Request, once: OnlyOnce, use: Use) -> Response:
    """Upload a file. Send a multipart form with `file`, `purpose` (`fine-tune`, `adapter` or `batch`) and optionally
    `expires_after`. Upload larger files in parts, at `/v1/uploads`. With `open`, lines can be appended to the file
    until it is closed; its `file` may be empty."""
    form = Form(_SHAPE)
    most = use.config.max_file_bytes + _FORM_BYTES
    announced = max(0, announced_size(request) - _FORM_BYTES)
    async with (
        actions.upload_space(use, caller, announced) as space,
        receive_form(request, form, most, use.config, space) as content,
    ):
        form.require("file", "purpose")
        return (await actions.create(use, caller, by, _facts(form), content, once)).response()


@router.get("")
@describes(FileList)
async def list_files(
    caller: FileKeeper,
    use: Use,
    purpose: str | None = None,
    after: str | None = None,
    limit: Annotated[int, Query(ge=1, le=MAX_LISTED)] = MAX_LISTED,
    order: Literal["asc", "desc"] = "desc",
) -> Response:
    """List the files that the key's scopes give access to, by the time of their creation: newest first unless `order`
    is `asc`."""
    return json_response(await actions.list_files(use, caller, purpose, after, limit, oldest=order == "asc"))


@router.get("/{file_id}")
@describes(File)
async def get_file(file_id: str, caller: FileKeeper, use: Use) -> Response:
    """Get a file's metadata."""
    return json_response(await actions.get(use, caller, file_id))


@router.get("/{file_id}/content")
@describes(None, json=False, media={"application/octet-stream": "The file, byte for byte."})
async def get_file_content(file_id: str, caller: FileKeeper, use: Use) -> Response:
    """Download a file."""
    file, chunks = await actions.content(use, caller, file_id)
    headers = {"content-length": str(file.size_bytes)}
    return StreamingResponse(await prefetch_first(chunks), headers=headers, media_type="application/octet-stream")


@router.post("/{file_id}/append")
@describes(File, form=LINES_FORM, errors=(409, 429))
async def append_to_file(
    file_id: str, caller: FileKeeper, by: By, request: Request, once: OnlyOnce, use: Use
) -> Response:
    """Append lines to a file that was created with `open`. Send a multipart form with `data`, at most 8 MiB and
    65,536 whole lines. Either all lines are appended or, if one is invalid, none; they must have the format of the
    file's first line. The file closes by itself an hour after the last append."""
    await actions.get(use, caller, file_id)
    async with (
        actions.upload_space(use, caller) as space,
        receive_data(request, MAX_APPEND_BYTES, use.config, space) as content,
    ):
        work = actions.append(use, caller, by, file_id, content, once)
        return (await supervise(work, request.receive, use.lifecycle)).response()


@router.post("/{file_id}/close")
@describes(File)
async def close_file(file_id: str, caller: FileKeeper, by: By, use: Use) -> Response:
    """Close an open file, so that nothing can be appended to it. A job that trains on it ends with its last line.
    Closing a closed file has no effect."""
    return json_response(await actions.close(use, caller, by, file_id))


@router.delete("/{file_id}")
@describes(DeletedFile)
async def delete_file(file_id: str, caller: FileKeeper, by: By, use: Use) -> Response:
    """Delete a file. Reads in progress complete normally."""
    return json_response(await actions.delete(use, caller, by, file_id))


def _facts(form: Form) -> FileFacts:
    purpose = form.text("purpose")
    if purpose not in _PURPOSES:
        wanted = " or ".join(f"'{each}'" for each in _PURPOSES)
        raise InvalidRequest(f"Invalid 'purpose': it must be {wanted}.", param="purpose", code="invalid_value")
    return FileFacts(form.filename or "file", Purpose(purpose), _lifetime(form), _is_open(form))


def _is_open(form: Form) -> bool:
    given = form.text("open")
    if given not in (None, "true", "false"):
        raise InvalidRequest("Invalid 'open': it must be true or false.", param="open", code="invalid_value")
    return given == "true"


def _lifetime(form: Form) -> int | None:
    anchor, seconds = form.text(_ANCHOR), form.text(_SECONDS)
    if anchor is None and seconds is None:
        return None
    if anchor != "created_at":
        words = "Invalid 'expires_after.anchor': it must be 'created_at'."
        raise InvalidRequest(words, param="expires_after.anchor", code="invalid_value")
    if seconds is None or not (seconds.isascii() and seconds.isdigit()):
        words = "Invalid 'expires_after.seconds': it must be a whole number."
        raise InvalidRequest(words, param="expires_after.seconds", code="invalid_value")
    return int(seconds)
