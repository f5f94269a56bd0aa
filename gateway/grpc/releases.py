"""loragate.v1.AdapterService: releases, alias metrics and restoring."""

from collections.abc import AsyncGenerator
from typing import Any

from google.protobuf.message import Message

from loragate.adapter_store.adapters.adapter import DEFAULT_ALIAS
from loragate.gateway.grpc.call import Call
from loragate.gateway.grpc.requests import body_from, parse_message
from loragate.gateway.grpc.responses import adapter_response
from loragate.gateway.operations import releases as release_actions
from loragate.gateway.operations.alias_metrics import alias_metrics as alias_metrics_of
from loragate.gateway.schemas.resources.adapters import MetricsQuery, Promotion, Rollback, VersionPatch
from loragate.gateway.schemas.validation import validated
from loragate.v1 import adapters_pb2 as pb


async def promote(call: Call) -> AsyncGenerator[pb.AdapterAlias, None]:
    """Point an alias at a single version."""
    name, document = _named(await call.request(lambda raw: parse_message(pb.PromoteRequest, raw)))
    body, once = validated(Promotion, document), call.once(f"POST /v1/adapters/{name}/promote")
    result = await release_actions.promote(call.services, call.tenant, call.change(), name, body, once)
    yield pb.AdapterAlias(**call.document(result))


async def rollback(call: Call) -> AsyncGenerator[pb.AdapterAlias, None]:
    """Point an alias at its previous targets."""
    name, document = _named(await call.request(lambda raw: parse_message(pb.RollbackRequest, raw)))
    body, once = validated(Rollback, document), call.once(f"POST /v1/adapters/{name}/rollback")
    result = await release_actions.rollback(call.services, call.tenant, call.change(), name, body, once)
    yield pb.AdapterAlias(**call.document(result))


async def alias_metrics(call: Call) -> AsyncGenerator[pb.AliasMetricsResponse, None]:
    """Return recent metrics of each version behind an alias."""
    name, document = _named(await call.request(lambda raw: parse_message(pb.AliasMetricsRequest, raw)))
    alias, query = document.pop("alias", DEFAULT_ALIAS), validated(MetricsQuery, document)
    yield pb.AliasMetricsResponse(**await alias_metrics_of(call.services, call.tenant, name, alias, query.hours))


async def update_version(call: Call) -> AsyncGenerator[pb.AdapterVersion, None]:
    """Take a version out of service, or put it back."""
    request = await call.request(lambda raw: parse_message(pb.UpdateVersionRequest, raw))
    body = validated(VersionPatch, {"status": request.status})
    target = request.name, request.version
    changed = await release_actions.change_version(call.services, call.tenant, call.change(), *target, body)
    yield pb.AdapterVersion(**changed)


async def restore(call: Call) -> AsyncGenerator[pb.Adapter, None]:
    """Restore a deleted adapter."""
    request = await call.request(lambda raw: parse_message(pb.RestoreAdapterRequest, raw))
    once = call.once(f"POST /v1/adapters/{request.name}/restore")
    result = await release_actions.restore(call.services, call.tenant, call.change(), request.name, once)
    restored = call.document(result)
    yield adapter_response(restored)


async def restore_version(call: Call) -> AsyncGenerator[pb.AdapterVersion, None]:
    """Restore a deleted version."""
    request = await call.request(lambda raw: parse_message(pb.RestoreVersionRequest, raw))
    target = request.name, request.version
    once = call.once(f"POST /v1/adapters/{request.name}/versions/{request.version}/restore")
    result = await release_actions.restore_version(call.services, call.tenant, call.change(), *target, once)
    yield pb.AdapterVersion(**call.document(result))


def _named(request: Message) -> tuple[str, dict[str, Any]]:
    document = body_from(request)
    return document.pop("name", ""), document
