"""loragate.v1.AdapterService: what becomes of adapters."""

from collections.abc import AsyncGenerator
from typing import Any

from google.protobuf.message import Message

from loragate.adapter_store.adapters.adapter import DEFAULT_ALIAS
from loragate.gateway.grpc.call import Call
from loragate.gateway.grpc.requests import body_of, parsed
from loragate.gateway.grpc.responses import adapter_response
from loragate.gateway.http.idempotency import Once, Result, once_of
from loragate.gateway.operations import releases as release_actions
from loragate.gateway.operations.adapters import Document
from loragate.gateway.operations.alias_metrics import alias_metrics as alias_metrics_of
from loragate.gateway.schemas.resources.adapters import MetricsQuery, Promotion, Rollback, VersionPatch
from loragate.gateway.schemas.validation import validated
from loragate.v1 import adapters_pb2 as pb


async def promote(call: Call) -> AsyncGenerator[pb.AdapterAlias, None]:
    """Points an alias at one version alone."""
    name, document = _named(await call.request(lambda raw: parsed(pb.PromoteRequest, raw)))
    body, once = validated(Promotion, document), once_for(call, f"POST /v1/adapters/{name}/promote")
    result = await release_actions.promote(call.services, call.tenant, call.context.actor, name, body, once)
    yield pb.AdapterAlias(**document_of(call, result))


async def rollback(call: Call) -> AsyncGenerator[pb.AdapterAlias, None]:
    """Points an alias at what it pointed at before."""
    name, document = _named(await call.request(lambda raw: parsed(pb.RollbackRequest, raw)))
    body, once = validated(Rollback, document), once_for(call, f"POST /v1/adapters/{name}/rollback")
    result = await release_actions.rollback(call.services, call.tenant, call.context.actor, name, body, once)
    yield pb.AdapterAlias(**document_of(call, result))


async def alias_metrics(call: Call) -> AsyncGenerator[pb.AliasMetricsResponse, None]:
    """What each version of an alias did lately."""
    name, document = _named(await call.request(lambda raw: parsed(pb.AliasMetricsRequest, raw)))
    alias, query = document.pop("alias", DEFAULT_ALIAS), validated(MetricsQuery, document)
    yield pb.AliasMetricsResponse(**await alias_metrics_of(call.services, call.tenant, name, alias, query.hours))


async def update_version(call: Call) -> AsyncGenerator[pb.AdapterVersion, None]:
    """Takes a version out of service, or puts it back."""
    request = await call.request(lambda raw: parsed(pb.UpdateVersionRequest, raw))
    body = validated(VersionPatch, {"status": request.status})
    target = request.name, request.version
    changed = await release_actions.change_version(call.services, call.tenant, call.context.actor, *target, body)
    yield pb.AdapterVersion(**changed)


async def restore(call: Call) -> AsyncGenerator[pb.Adapter, None]:
    """Brings back a deleted adapter."""
    request = await call.request(lambda raw: parsed(pb.RestoreAdapterRequest, raw))
    once = once_for(call, f"POST /v1/adapters/{request.name}/restore")
    result = await release_actions.restore(call.services, call.tenant, call.context.actor, request.name, once)
    yield adapter_response(document_of(call, result))


async def restore_version(call: Call) -> AsyncGenerator[pb.AdapterVersion, None]:
    """Brings back a deleted version."""
    request = await call.request(lambda raw: parsed(pb.RestoreVersionRequest, raw))
    target = request.name, request.version
    once = once_for(call, f"POST /v1/adapters/{request.name}/versions/{request.version}/restore")
    result = await release_actions.restore_version(call.services, call.tenant, call.context.actor, *target, once)
    yield pb.AdapterVersion(**document_of(call, result))


def once_for(call: Call, route: str) -> Once:
    """The call's `idempotency-key`; `route` is what REST calls the same."""
    return once_of(call.stream.metadata.get("idempotency-key"), call.services.store, route)


def document_of(call: Call, result: Result[Document]) -> Document:
    """Return the result's document; its headers go out with the response."""
    call.headers |= result.headers
    return result.document


def _named(request: Message) -> tuple[str, dict[str, Any]]:
    document = body_of(request)
    return document.pop("name", ""), document
