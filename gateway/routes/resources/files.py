"""/v1/files, as in OpenAI's API."""

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response
from starlette.responses import StreamingResponse

from loragate.adapter_store.files.file import FileFacts, Purpose
from loragate.adapter_store.files.repository import MOST_LISTED
from loragate.gateway.dependencies.idempotency_key import OnlyOnce
from loragate.gateway.dependencies.requirements import By, FileKeeper
from loragate.gateway.dependencies.services import Use
from loragate.gateway.errors import InvalidRequest
from loragate.gateway.http.bodies import announced_size
from loragate.gateway.http.envelope import json_response
from loragate.gateway.http.prefetch_first import prefetch_first
from loragate.gateway.objects.files import DeletedFile, File, FileList
from loragate.gateway.openapi.responses import answers
from loragate.gateway.operations import files as actions
from loragate.gateway.schemas.resources.uploads import FILE_FORM, LINES_FORM
from loragate.gateway.uploads.multipart import Form, FormShape
from loragate.gateway.uploads.spool import receive_data, receive_form
from loragate.gateway.uploads.training_lines import MAX_APPEND_BYTES

router = APIRouter(prefix="/v1/files", tags=["files"])

_FORM_BYTES = 64 << 10  # beside the file itself
_ANCHOR, _SECONDS = "expires_after[anchor]", "expires_after[seconds]"
_SHAPE = FormShape({"purpose": 64, "open": 8, _ANCHOR: 64, _SECONDS: 16}, spooled="file")
_PURPOSES = (Purpose.FINE_TUNE, Purpose.ADAPTER)


@router.post("")
@answers(File, form=FILE_FORM, refusals=(429,))
async def create_file(caller: FileKeeper, by: By, request: Request, once: OnlyOnce, use: Use) -> Response:
    """Multipart: `file`, `purpose` (`fine-tune` or `adapter`), perhaps `expires_after`. Larger ones come in parts. To
    one that is made with `open` lines can be appended until it is closed; its `file` may be empty."""
    await actions.check_room(use, caller, max(0, announced_size(request) - _FORM_BYTES))
    form = Form(_SHAPE)
    most = use.config.max_file_bytes + _FORM_BYTES
    with use.upload_slots.acquire(caller.tenant_id):
        async with receive_form(request, form, most, use.config) as content:
            form.require("file", "purpose")
            return (await actions.create(use, caller, by, _facts(form), content, once)).response()


@router.get("")
@answers(FileList)
async def list_files(
    caller: FileKeeper,
    use: Use,
    purpose: str | None = None,
    after: str | None = None,
    limit: Annotated[int, Query(ge=1, le=MOST_LISTED)] = MOST_LISTED,
    order: Literal["asc", "desc"] = "desc",
) -> Response:
    """By the time of their making, newest first unless `order` is `asc`; those that the key's scopes are good for."""
    return json_response(await actions.list_files(use, caller, purpose, after, limit, oldest=order == "asc"))


@router.get("/{file_id}")
@answers(File)
async def get_file(file_id: str, caller: FileKeeper, use: Use) -> Response:
    """One file."""
    return json_response(await actions.get(use, caller, file_id))


@router.get("/{file_id}/content")
@answers(None, json=False, media={"application/octet-stream": "The file, byte for byte."})
async def get_file_content(file_id: str, caller: FileKeeper, use: Use) -> Response:
    """Its bytes."""
    file, chunks = await actions.content(use, caller, file_id)
    headers = {"content-length": str(file.size_bytes)}
    return StreamingResponse(await prefetch_first(chunks), headers=headers, media_type="application/octet-stream")


@router.post("/{file_id}/append")
@answers(File, form=LINES_FORM, refusals=(409, 429))
async def append_to_file(
    file_id: str, caller: FileKeeper, by: By, request: Request, once: OnlyOnce, use: Use
) -> Response:
    """Multipart: `data`, at most 8 MiB of whole lines, behind those of a file that was made with `open`. All of them
    are taken or, where one is wrong, none; they must be in the format of the file's first line. An hour after the last
    append the file closes by itself."""
    await actions.get(use, caller, file_id)
    with use.upload_slots.acquire(caller.tenant_id):
        async with receive_data(request, MAX_APPEND_BYTES, use.config) as content:
            return (await actions.append(use, caller, by, file_id, content, once)).response()


@router.post("/{file_id}/close")
@answers(File)
async def close_file(file_id: str, caller: FileKeeper, by: By, use: Use) -> Response:
    """Nothing is appended any more: a job that trains on it ends with its last line. A closed one stays as it is."""
    return json_response(await actions.close(use, caller, by, file_id))


@router.delete("/{file_id}")
@answers(DeletedFile)
async def delete_file(file_id: str, caller: FileKeeper, by: By, use: Use) -> Response:
    """Who reads it reads on."""
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
