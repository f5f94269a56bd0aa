"""/v1/models."""

from collections.abc import Sequence

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
from loragate.gateway.objects.common import unix_seconds
from loragate.gateway.objects.models import DeletedModel, Model, ModelList, deleted_model, model_object
from loragate.gateway.openapi.headers import ADAPTER
from loragate.gateway.openapi.responses import describes
from loragate.gateway.services import Services

router = APIRouter(prefix="/v1/models", tags=["models"])

_SERVER, _TENANT = "loragate", "tenant"  # owners of the base model, and of uploaded adapters


@router.get("")
@describes(ModelList)
async def list_models(caller: Inference, use: Use) -> Response:
    """List the base model and the caller's adapters under the names that requests use. The results of fine-tuning jobs
    are listed under the names that the jobs gave them, too."""
    base = use.link.base.id
    adapters, tuned = await _adapters(use, caller)
    models = [model_object(base, use.started_at, _SERVER, parent=None)]
    for adapter in adapters:
        name = _usable_name(adapter)
        if name is not None:
            models.append(model_object(name, unix_seconds(adapter.created_at), _TENANT, parent=base))
    there = {TunedAlias(adapter.name, alias) for adapter in adapters for alias in adapter.aliases}
    models += [
        model_object(made.model, unix_seconds(made.made_at), caller.tenant_id, parent=base)
        for made in tuned
        if parse_tuned_name(made.model) in there
    ]
    return json_response({"object": "list", "data": models})


@router.get("/{model:path}")
@describes(Model, headers=ADAPTER)
async def get_model(model: str, caller: Inference, use: Use) -> Response:
    """Get a model by any name that a request may use as `model`."""
    base = use.link.base
    target = await use.resolver.resolve(caller, base, model)
    if target.adapter is None:
        return json_response(model_object(base.id, use.started_at, _SERVER, parent=None))
    async with use.store.tenant(caller.tenant_id) as scope:
        adapter = await scope.adapters.get(target.adapter.name)
    owner = _TENANT if parse_tuned_name(model) is None else caller.tenant_id
    body = model_object(model, unix_seconds(adapter.created_at), owner, parent=base.id)
    return json_response(body, headers=target.headers)


@router.delete("/{model:path}")
@describes(DeletedModel)
async def delete_model(model: str, caller: AdapterWriter, by: By, use: Use) -> Response:
    """Delete the result of a fine-tuning job by its `ft:…` name: its adapter, with all versions and checkpoints. To
    delete other adapters, use `DELETE /v1/adapters/{name}`."""
    tuned = parse_tuned_name(model)
    async with use.store.tenant(caller.tenant_id, write=True, by=by) as scope:
        if tuned is None or tuned.alias != TRAINED or not await scope.jobs.has_made(model):
            raise model_not_found(model)
        try:
            await scope.adapters.delete(tuned.adapter)
        except NotFound:
            raise model_not_found(model) from None
    return json_response(deleted_model(model))


async def _adapters(use: Services, caller: TenantPrincipal) -> tuple[list[Adapter], Sequence[TunedModel]]:
    """Return all adapters and all results of jobs: OpenAI's list of models has no pages."""
    found: list[Adapter] = []
    async with use.store.tenant(caller.tenant_id) as scope:
        while True:
            page = await scope.adapters.list(after=found[-1].id if found else None, limit=MAX_LIMIT)
            found.extend(page)
            if not page.has_more:
                return found, await scope.jobs.models()


def _usable_name(adapter: Adapter) -> str | None:
    """Return the name that a request can use: an adapter without a default alias needs a version."""
    if DEFAULT_ALIAS in adapter.aliases:
        return adapter.name
    return None if adapter.latest_version is None else f"{adapter.name}:{adapter.latest_version}"
