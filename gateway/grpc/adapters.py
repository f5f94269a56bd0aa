"""loragate.v1.AdapterService: uploads, adapters, aliases and versions."""

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, TypeVar

import orjson

from loragate.adapter_store.adapters.adapter import AdapterStatus, VersionStatus
from loragate.adapter_store.adapters.filter import AdapterFilter
from loragate.adapter_store.blobs.blobs import CONFIG_FILE, TENSORS_FILE
from loragate.adapter_store.database.page import DEFAULT_LIMIT
from loragate.adapter_store.signatures.bundle import SIGNATURE_FILE
from loragate.gateway.errors import InvalidRequest
from loragate.gateway.grpc.call import Call
from loragate.gateway.grpc.requests import body_from, parse_message
from loragate.gateway.grpc.responses import adapter_response, adapters_response
from loragate.gateway.operations import adapters as actions
from loragate.gateway.operations.files import upload_space
from loragate.gateway.schemas.resources.adapters import AdapterPatch, AliasPut
from loragate.gateway.schemas.validation import validated
from loragate.gateway.uploads.adapter_upload import ADAPTER_FORM, collect_adapter_upload
from loragate.gateway.uploads.multipart import Form
from loragate.v1 import adapters_pb2 as pb

Status = TypeVar("Status", AdapterStatus, VersionStatus)

_UPLOAD = "POST /v1/adapters"  # the equivalent route of the REST API
_FILES = {"adapter_config": CONFIG_FILE, "adapter_model": TENSORS_FILE, "signature": SIGNATURE_FILE}


async def upload(call: Call) -> AsyncGenerator[pb.AdapterVersion, None]:
    """Upload the next version of an adapter, once per `idempotency-key`, which REST and gRPC share."""
    form = Form(ADAPTER_FORM)
    once = call.once(_UPLOAD)
    call.services.link.require_base()  # nothing can be checked before an engine has described its base model
    async with (
        upload_space(call.services, call.tenant) as space,
        collect_adapter_upload(form, _fill(form, call), space) as complete,
    ):
        result = await actions.publish(call.services, call.tenant, call.change(), complete, once)
    yield pb.AdapterVersion(**call.document(result))


async def _fill(form: Form, call: Call) -> AsyncIterator[None]:
    config = call.services.config
    async for raw in call.messages(config.max_upload_bytes, config.upload_pace):
        for field, value in parse_message(pb.UploadRequest, raw).ListFields():
            form.add(_FILES.get(field.name, field.name), _part(value))
        yield


def _part(value: Any) -> bytes:
    """Return the value as a multipart form contains it."""
    match value:
        case bytes():
            return value
        case str():
            return value.encode()
        case int():
            return b"%d" % value
        case _:
            return orjson.dumps(dict(value))


async def list_adapters(call: Call) -> AsyncGenerator[pb.ListAdaptersResponse, None]:
    """List adapters, newest first."""
    request = await call.request(lambda raw: parse_message(pb.ListAdaptersRequest, raw))
    after = request.after if request.HasField("after") else None
    limit = request.limit if request.HasField("limit") else DEFAULT_LIMIT
    status = _status(AdapterStatus, request.status) if request.HasField("status") else None
    wanted = AdapterFilter(request.search, tuple(request.tags), status)
    yield adapters_response(await actions.list_adapters(call.services, call.tenant, wanted, after, limit))


async def get(call: Call) -> AsyncGenerator[pb.Adapter, None]:
    """Return one adapter with its aliases."""
    request = await call.request(lambda raw: parse_message(pb.GetAdapterRequest, raw))
    yield adapter_response(await actions.get(call.services, call.tenant, request.name))


async def update(call: Call) -> AsyncGenerator[pb.Adapter, None]:
    """Change the fields that are given."""
    document = body_from(await call.request(lambda raw: parse_message(pb.UpdateAdapterRequest, raw)))
    name = document.pop("name", "")
    if "tags" in document:
        document["tags"] = document["tags"].get("tags", [])
    lifted = dict.fromkeys(document.pop("unlimited", []))
    document["limits"] = {**document.get("limits", {}), **lifted}
    body = validated(AdapterPatch, document)
    yield adapter_response(await actions.update(call.services, call.tenant, call.change(), name, body))


async def set_alias(call: Call) -> AsyncGenerator[pb.AdapterAlias, None]:
    """Point an alias at versions, by weight."""
    request = await call.request(lambda raw: parse_message(pb.SetAliasRequest, raw))
    document = body_from(request)
    body = validated(AliasPut, {"targets": document.get("targets", [])})
    yield pb.AdapterAlias(
        **await actions.set_alias(call.services, call.tenant, call.change(), request.name, request.alias, body)
    )


async def delete_alias(call: Call) -> AsyncGenerator[pb.DeleteAdapterResponse, None]:
    """Delete an alias. Its versions stay."""
    request = await call.request(lambda raw: parse_message(pb.DeleteAliasRequest, raw))
    who = call.services, call.tenant, call.change()
    yield pb.DeleteAdapterResponse(**await actions.delete_alias(*who, request.name, request.alias))


async def delete(call: Call) -> AsyncGenerator[pb.DeleteAdapterResponse, None]:
    """Delete an adapter with its versions and aliases."""
    request = await call.request(lambda raw: parse_message(pb.DeleteAdapterRequest, raw))
    yield pb.DeleteAdapterResponse(**await actions.delete(call.services, call.tenant, call.change(), request.name))


async def list_versions(call: Call) -> AsyncGenerator[pb.ListVersionsResponse, None]:
    """List versions, highest number first."""
    request = await call.request(lambda raw: parse_message(pb.ListVersionsRequest, raw))
    after = request.after if request.HasField("after") else None
    limit = request.limit if request.HasField("limit") else DEFAULT_LIMIT
    status = _status(VersionStatus, request.status) if request.HasField("status") else None
    page = await actions.list_versions(call.services, call.tenant, request.name, after, limit, status)
    yield pb.ListVersionsResponse(**page)


def _status(kind: type[Status], text: str) -> Status:
    try:
        return kind(text)
    except ValueError:
        message = f"Invalid 'status': it must be one of {', '.join(kind)}."
        raise InvalidRequest(message, param="status", code="invalid_value") from None


async def get_version(call: Call) -> AsyncGenerator[pb.AdapterVersion, None]:
    """Return one version."""
    request = await call.request(lambda raw: parse_message(pb.GetVersionRequest, raw))
    yield pb.AdapterVersion(**await actions.get_version(call.services, call.tenant, request.name, request.version))


async def delete_version(call: Call) -> AsyncGenerator[pb.DeleteAdapterResponse, None]:
    """Delete a version to which no alias points."""
    request = await call.request(lambda raw: parse_message(pb.DeleteVersionRequest, raw))
    gone = await actions.delete_version(call.services, call.tenant, call.change(), request.name, request.version)
    yield pb.DeleteAdapterResponse(**gone)
