"""/v1/models."""

from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, Response

from loragate.adapter_store.adapters.adapter import DEFAULT_ALIAS, Adapter
from loragate.adapter_store.auth.principal import TenantPrincipal
from loragate.adapter_store.database.page import MAX_LIMIT
from loragate.adapter_store.errors import NotFound
from loragate.adapter_store.jobs.job import TunedModel
from loragate.finetune.jobs.model_name import TRAINED, TunedAlias, parse_tuned_name
from loragate.gateway.dependencies.requirements import AdapterWriter, By, Inference
from loragate.gateway.dependencies.services import Use
from loragate.gateway.generation.resolver import model_not_found
from loragate.gateway.http.envelope import json_response
from loragate.gateway.objects.common import deleted_object, unix_seconds
from loragate.gateway.objects.models import DeletedModel, Model, ModelList
from loragate.gateway.openapi.headers import ADAPTER
from loragate.gateway.openapi.responses import answers
from loragate.gateway.services import Services

router = APIRouter(prefix="/v1/models", tags=["models"])

_SERVER, _TENANT = "loragate", "tenant"  # who owns the base model, and what was uploaded


@router.get("")
@answers(ModelList)
async def list_models(caller: Inference, use: Use) -> Response:
    """The base model and the caller's adapters, by the names that requests use; what fine-tuning jobs have made, by the
    names that they gave it, too."""
    base = use.link.base.id
    adapters, tuned = await _adapters(use, caller)
    models = [_model(base, use.started_at, _SERVER, parent=None)]
    for adapter in adapters:
        name = _usable_name(adapter)
        if name is not None:
            models.append(_model(name, unix_seconds(adapter.created_at), _TENANT, parent=base))
    there = {TunedAlias(adapter.name, alias) for adapter in adapters for alias in adapter.aliases}
    models += [
        _model(made.model, unix_seconds(made.made_at), caller.tenant_id, parent=base)
        for made in tuned
        if parse_tuned_name(made.model) in there
    ]
    return json_response({"object": "list", "data": models})


@router.get("/{model:path}")
@answers(Model, headers=ADAPTER)
async def get_model(model: str, caller: Inference, use: Use) -> Response:
    """One model, by any name of the grammar."""
    base = use.link.base
    target = await use.resolver.resolve(caller, base, model)
    if target.adapter is None:
        return json_response(_model(base.id, use.started_at, _SERVER, parent=None))
    async with use.store.tenant(caller.tenant_id) as scope:
        adapter = await scope.adapters.get(target.adapter.name)
    owner = _TENANT if parse_tuned_name(model) is None else caller.tenant_id
    body = _model(model, unix_seconds(adapter.created_at), owner, parent=base.id)
    return json_response(body, headers=target.headers)


@router.delete("/{model:path}")
@answers(DeletedModel)
async def delete_model(model: str, caller: AdapterWriter, by: By, use: Use) -> Response:
    """What a fine-tuning job has made, by the `ft:…` name that it gave it: its adapter, with all versions and
    checkpoints. Other adapters are deleted at `/v1/adapters/{name}`."""
    tuned = parse_tuned_name(model)
    async with use.store.tenant(caller.tenant_id, write=True, by=by) as scope:
        if tuned is None or tuned.alias != TRAINED or not await scope.jobs.has_made(model):
            raise model_not_found(model)
        try:
            await scope.adapters.delete(tuned.adapter)
        except NotFound:
            raise model_not_found(model) from None
    return json_response(deleted_object("model", model))


async def _adapters(use: Services, caller: TenantPrincipal) -> tuple[list[Adapter], Sequence[TunedModel]]:
    """All of them, and what jobs have made: OpenAI's list of models has no pages."""
    found: list[Adapter] = []
    async with use.store.tenant(caller.tenant_id) as scope:
        while True:
            page = await scope.adapters.list(after=found[-1].id if found else None, limit=MAX_LIMIT)
            found.extend(page)
            if not page.has_more:
                return found, await scope.jobs.models()


def _usable_name(adapter: Adapter) -> str | None:
    """Without a default alias an adapter is meant by a version."""
    if DEFAULT_ALIAS in adapter.aliases:
        return adapter.name
    return None if adapter.latest_version is None else f"{adapter.name}:{adapter.latest_version}"


def _model(id_: str, created: int, owner: str, *, parent: str | None) -> dict[str, Any]:
    return {"id": id_, "object": "model", "created": created, "owned_by": owner, "parent": parent}
