"""/v1/adapters: upload, list, versions, files, delete."""

from contextlib import AbstractAsyncContextManager
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from starlette.responses import StreamingResponse

from loragate.adapter_store.adapters.adapter import VersionStatus
from loragate.adapter_store.auth.principal import TenantPrincipal
from loragate.adapter_store.blobs.blobs import CONFIG_FILE, TENSORS_FILE
from loragate.adapter_store.database.page import DEFAULT_LIMIT, MAX_LIMIT
from loragate.gateway.dependencies.idempotency_key import OnlyOnce
from loragate.gateway.dependencies.json_body import JsonBody
from loragate.gateway.dependencies.requirements import AdapterReader, AdapterWriter, By, Exporter
from loragate.gateway.dependencies.services import Use
from loragate.gateway.errors import Unavailable
from loragate.gateway.http.archive_stream import ArchiveStream
from loragate.gateway.http.bodies import announced_size
from loragate.gateway.http.context import context_of
from loragate.gateway.http.envelope import json_response
from loragate.gateway.objects.adapters import (
    Adapter,
    AdapterList,
    AdapterVersion,
    AdapterVersionList,
    DeletedAdapter,
    MergedSize,
    merged_size_object,
)
from loragate.gateway.openapi.responses import describes
from loragate.gateway.operations import adapters as actions
from loragate.gateway.operations import releases
from loragate.gateway.operations.adapters_from_files import from_files
from loragate.gateway.operations.files import upload_space
from loragate.gateway.operations.merged_exports import merged_export, merged_size
from loragate.gateway.schemas.resources.adapter_query import Wanted
from loragate.gateway.schemas.resources.adapters import UPLOAD_FORM, AdapterFromFiles, AdapterPatch, VersionPatch
from loragate.gateway.services import Services
from loragate.gateway.uploads.adapter_upload import AdapterUpload, receive_adapter_upload
from loragate.gateway.uploads.spool_space import UploadSpace

router = APIRouter(prefix="/v1/adapters", tags=["adapters"])

Limit = Annotated[int, Query(ge=1, le=MAX_LIMIT)]
Version = Annotated[int, Path(ge=1, lt=1 << 31)]
_FORM_BYTES = 2 << 20  # in addition to the tensors, including the config
_FROM_FILES = JsonBody(AdapterFromFiles)
FileName = Literal["adapter_config.json", "adapter_model.safetensors"]


@router.post("", status_code=201)
@describes(AdapterVersion, form=UPLOAD_FORM, body=_FROM_FILES, errors=(404, 429))
async def upload_adapter(caller: AdapterWriter, by: By, request: Request, once: OnlyOnce, use: Use) -> Response:
    """Create the next version of an adapter. Send a multipart form with `name`, optional `alias`, `tags` and
    `description`, and the two files that PEFT saves; or JSON that names files uploaded before. The version is ready
    once the engine has tried it; while there is no engine it is `verifying`."""
    use.link.require_base()  # nothing can be checked before an engine has described its base model
    announced = max(0, announced_size(request) - _FORM_BYTES)
    async with upload_space(use, caller, announced) as space, await _upload(caller, request, use, space) as upload:
        return (await actions.publish(use, caller, by, upload, once)).response()


@router.get("")
@describes(AdapterList)
async def list_adapters(
    caller: AdapterReader, wanted: Wanted, use: Use, after: str | None = None, limit: Limit = DEFAULT_LIMIT
) -> Response:
    """List adapters, newest first."""
    return json_response(await actions.list_adapters(use, caller, wanted, after, limit))


@router.get(
    "/ft:{model:path}", include_in_schema=False
)  # like the next route, but a base model's id may contain slashes
@describes(Adapter)
async def get_tuned_adapter(model: str, caller: AdapterReader, use: Use) -> Response:
    """Get the adapter of a fine-tuning job's result."""
    return json_response(await actions.get(use, caller, f"ft:{model}"))


@router.get("/{name}")
@describes(Adapter)
async def get_adapter(name: str, caller: AdapterReader, use: Use) -> Response:
    """Get an adapter with its aliases. The name may also be the `ft:…` name of a fine-tuning job's result; other routes
    take only the adapter's own name."""
    return json_response(await actions.get(use, caller, name))


@router.patch("/{name}")
@describes(Adapter)
async def update_adapter(
    name: str,
    caller: AdapterWriter,
    by: By,
    body: Annotated[AdapterPatch, Depends(JsonBody(AdapterPatch))],
    use: Use,
) -> Response:
    """Change the fields that are given: `tags` and `description` as a whole, of `limits` only those that are named. The
    limits apply to all of the tenant's keys together, in addition to the tenant's own limits. A `disabled` adapter
    rejects new requests with 403 and keeps all its data."""
    return json_response(await actions.update(use, caller, by, name, body))


@router.delete("/{name}")
@describes(DeletedAdapter)
async def delete_adapter(name: str, caller: AdapterWriter, by: By, use: Use) -> Response:
    """Delete an adapter with its versions and aliases. Running requests finish on their version."""
    return json_response(await actions.delete(use, caller, by, name))


@router.get("/{name}/versions")
@describes(AdapterVersionList)
async def list_versions(
    name: str,
    caller: AdapterReader,
    use: Use,
    after: Annotated[int | None, Query(ge=1, lt=1 << 31)] = None,
    limit: Limit = DEFAULT_LIMIT,
    status: VersionStatus | None = None,
) -> Response:
    """List versions, highest number first: those with `status`, or else all published ones. The cursor is a version's
    number."""
    return json_response(await actions.list_versions(use, caller, name, after, limit, status))


@router.get("/{name}/versions/{version}")
@describes(AdapterVersion)
async def get_version(name: str, version: Version, caller: AdapterReader, use: Use) -> Response:
    """Get a version."""
    return json_response(await actions.get_version(use, caller, name, version))


@router.patch("/{name}/versions/{version}")
@describes(AdapterVersion, errors=(409,))
async def change_version(
    name: str,
    version: Version,
    caller: AdapterWriter,
    by: By,
    body: Annotated[VersionPatch, Depends(JsonBody(VersionPatch))],
    use: Use,
) -> Response:
    """Disable a version, or enable it again. While it is disabled, the alias's other versions serve its share."""
    return json_response(await releases.change_version(use, caller, by, name, version, body))


@router.delete("/{name}/versions/{version}")
@describes(DeletedAdapter, errors=(409,))
async def delete_version(name: str, version: Version, caller: AdapterWriter, by: By, use: Use) -> Response:
    """Delete a version. Responds 409 while an alias points to it."""
    return json_response(await actions.delete_version(use, caller, by, name, version))


@router.get("/{name}/versions/{version}/files/{file}")
@describes(None, media={"application/octet-stream": "The tensors."})
async def download_file(name: str, version: Version, file: FileName, caller: AdapterReader, use: Use) -> Response:
    """Download one of the two files, byte for byte as it was uploaded."""
    async with use.store.tenant(caller.tenant_id) as scope:
        found = await scope.adapters.version(name, version)
    try:
        stored = await use.store.open_adapter(caller.tenant_id, found.digest)
    except (LookupError, OSError):
        raise Unavailable("The adapter's files cannot be read at the moment.", code="adapter_unavailable") from None
    if file == CONFIG_FILE:
        return Response(stored.config_json, media_type="application/json")
    assert file == TENSORS_FILE
    length = {"content-length": str(found.size_bytes)}
    return StreamingResponse(stored.tensors, headers=length, media_type="application/octet-stream")


@router.get("/{name}/versions/{version}/merged")
@describes(None, json=False, media={"application/x-tar": "The files of the merged model."}, errors=(400, 429))
async def export_merged(name: str, version: Version, caller: Exporter, request: Request, use: Use) -> Response:
    """Export the base model with a version merged into its weights, as a tar archive that transformers loads once it
    is unpacked. Needs the scope `export`, which `all` does not include, and an operator who has switched exports on."""
    export = merged_export(use, caller, context_of(request.scope).actor, name, version)
    return ArchiveStream(export, "merged.tar", use.lifecycle, use.config.stall_seconds)


@router.get("/{name}/versions/{version}/merged/size")
@describes(MergedSize, errors=(400, 429))
async def get_merged_size(name: str, version: Version, caller: Exporter, use: Use) -> Response:
    """Get the size of a merged export, without exporting anything. If the version cannot be exported at the moment, the
    response is the error of the export."""
    return json_response(merged_size_object(await merged_size(use, caller, name, version)))


async def _upload(
    caller: TenantPrincipal, request: Request, use: Services, space: UploadSpace
) -> AbstractAsyncContextManager[AdapterUpload]:
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() == "application/json":
        return from_files(use, caller, await _FROM_FILES(request), space)
    return receive_adapter_upload(request, use.config, space)
