"""What a model's name means to its tenant now."""

from loragate.adapter_store import errors
from loragate.adapter_store.adapters.routing import Route
from loragate.adapter_store.scopes import TenantScope
from loragate.finetune.jobs.model_name import meaning_of
from loragate.gateway.model_names import model_not_found, parse_adapter_name


async def route_of(scope: TenantScope, model: str) -> Route:
    """Of any name but the base model's. Raises NotFound."""
    try:
        tuned = meaning_of(model)
        if tuned is not None:
            if not await scope.jobs.has_made(model):
                raise model_not_found(model)
            return await scope.adapters.route(tuned.adapter, alias=tuned.alias)
        name = parse_adapter_name(model)
        return await scope.adapters.route(name.adapter, version=name.version, alias=name.alias)
    except errors.NotFound:
        raise model_not_found(model) from None
