"""/v1/adapters: upload, list, versions, files, delete."""

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query, Request, Response
from starlette.responses import StreamingResponse

from loragate.adapter_store.adapter import DEFAULT_ALIAS
from loragate.adapter_store.blobs import CONFIG_FILE, TENSORS_FILE
from loragate.adapter_store.page import DEFAULT_LIMIT, MAX_LIMIT
from loragate.gateway.auth.requirements import AdapterReader, AdapterWriter, By
from loragate.gateway.http.envelope import json_response
from loragate.gateway.http.errors import Unavailable
from loragate.gateway.services import Use
from loragate.gateway.uploads import received
from loragate.gateway.wire.adapters import adapter_object, version_object
from loragate.gateway.wire.lists import deleted_object, list_object

router = APIRouter(prefix="/v1/adapters", tags=["adapters"])

Limit = Annotated[int, Query(ge=1, le=MAX_LIMIT)]
Version = Annotated[int, Path(ge=1, lt=1 << 31)]
FileName = Literal["adapter_config.json", "adapter_model.safetensors"]


@router.post("", status_code=201)
async def upload_adapter(caller: AdapterWriter, by: By, request: Request, use: Use) -> Response:
    """Multipart: `name`, optional `alias`, and the two files that PEFT saves. The next version of that name."""
    _ = use.link.base  # nothing can be checked before an engine has said what it serves
    async with (
        received(request, use.config) as upload,
        use.store.tenant(caller.tenant_id, write=True, by=by) as scope,
    ):
        version = await scope.adapters.publish(
            upload.name, upload.config_json, upload.tensors, alias=upload.alias or DEFAULT_ALIAS
        )
    return json_response(version_object(version), 201)


@router.get("")
async def list_adapters(
    caller: AdapterReader, use: Use, after: str | None = None, limit: Limit = DEFAULT_LIMIT
) -> Response:
    """Newest first."""
    async with use.store.tenant(caller.tenant_id) as scope:
        page = await scope.adapters.list(after=after, limit=limit)
    return json_response(list_object([adapter_object(adapter) for adapter in page], has_more=page.has_more))


@router.get("/{name}")
async def get_adapter(name: str, caller: AdapterReader, use: Use) -> Response:
    """One adapter with its aliases."""
    async with use.store.tenant(caller.tenant_id) as scope:
        adapter = await scope.adapters.get(name)
    return json_response(adapter_object(adapter))


@router.delete("/{name}")
async def delete_adapter(name: str, caller: AdapterWriter, by: By, use: Use) -> Response:
    """With its versions and aliases. Requests that run finish on their version."""
    async with use.store.tenant(caller.tenant_id, write=True, by=by) as scope:
        adapter = await scope.adapters.get(name)
        await scope.adapters.delete(name)
    return json_response(deleted_object("adapter", adapter.id, name=name))


@router.get("/{name}/versions")
async def list_versions(
    name: str,
    caller: AdapterReader,
    use: Use,
    after: Annotated[int | None, Query(ge=1, lt=1 << 31)] = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Response:
    """Highest number first; the cursor is a version's number."""
    async with use.store.tenant(caller.tenant_id) as scope:
        page = await scope.adapters.versions(name, after=after, limit=limit)
    data = [version_object(version) for version in page]
    return json_response(list_object(data, has_more=page.has_more, cursor="version"))


@router.get("/{name}/versions/{version}")
async def get_version(name: str, version: Version, caller: AdapterReader, use: Use) -> Response:
    """One version."""
    async with use.store.tenant(caller.tenant_id) as scope:
        found = await scope.adapters.version(name, version)
    return json_response(version_object(found))


@router.delete("/{name}/versions/{version}")
async def delete_version(name: str, version: Version, caller: AdapterWriter, by: By, use: Use) -> Response:
    """409 while an alias points at it."""
    async with use.store.tenant(caller.tenant_id, write=True, by=by) as scope:
        found = await scope.adapters.version(name, version)
        await scope.adapters.delete_version(name, version)
    return json_response(deleted_object("adapter.version", found.adapter_id, name=name, version=version))


@router.get("/{name}/versions/{version}/files/{file}")
async def download_file(name: str, version: Version, file: FileName, caller: AdapterReader, use: Use) -> Response:
    """One of the two files, byte for byte as it was uploaded."""
    async with use.store.tenant(caller.tenant_id) as scope:
        found = await scope.adapters.version(name, version)
    try:
        stored = await use.store.open_adapter(caller.tenant_id, found.digest)
    except (LookupError, OSError):
        raise Unavailable("The adapter's bytes cannot be read at the moment.", code="adapter_unavailable") from None
    if file == CONFIG_FILE:
        return Response(stored.config_json, media_type="application/json")
    assert file == TENSORS_FILE
    length = {"content-length": str(found.size_bytes)}
    return StreamingResponse(stored.tensors, headers=length, media_type="application/octet-stream")
