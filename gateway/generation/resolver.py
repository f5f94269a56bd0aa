"""The resolver: from the `model` of a request to the weights that it stands for."""

import re
from dataclasses import dataclass

from loragate.adapter_store import errors
from loragate.adapter_store.adapters.routing import Route
from loragate.adapter_store.auth.principal import TenantPrincipal
from loragate.adapter_store.scopes import TenantScope
from loragate.adapter_store.store import Store
from loragate.adapter_store.timestamps import elapsed
from loragate.finetune.jobs.model_name import parse_tuned_name
from loragate.gateway.errors import NotFound
from loragate.gateway.generation.request import Target
from loragate.gateway.resilience.ttl_cache import CachedRead, TTLCache
from loragate.gateway.text.base_model import BaseModel

_MAX_ROUTES = 20_000


class Resolver:
    """Resolves names of models. One per process. It subscribes to the store's change notices, so a change of an alias
    takes effect with the next request."""

    def __init__(self, store: Store, lifetime: float) -> None:
        self._store = store
        self._routes: TTLCache[tuple[str, str, str], Route] = TTLCache(lifetime, _MAX_ROUTES)
        store.notices.subscribe(self._routes.discard)

    async def resolve(
        self, caller: TenantPrincipal, base: BaseModel, model: str, sticky_key: str | None = None
    ) -> Target:
        """Return the weights. If an alias has several versions, a `sticky_key` always selects the same one, until the
        alias changes.

        Raise ApiError for what the caller cannot use, and StoreError.
        """
        if model == base.id:
            return Target(caller.tenant_id, adapter=None)
        key = (caller.tenant_id, base.manifest.base_digest, model)  # what can be served depends on the base model
        route = await self._routes.get(key, lambda: self._read(caller.tenant_id, model))
        assert route is not None
        return Target(caller.tenant_id, route.pick(sticky_key=sticky_key))

    async def _read(self, tenant_id: str, model: str) -> CachedRead[Route]:
        read_at = elapsed()
        async with self._store.tenant(tenant_id) as scope:
            return CachedRead(await route_of(scope, model), tenant_id, read_at)


_GRAMMAR = re.compile(
    r"(?P<adapter>[A-Za-z0-9][A-Za-z0-9._-]*)(?::(?P<version>[1-9][0-9]{0,8})|@(?P<alias>[A-Za-z0-9][A-Za-z0-9._-]*))?"
)


@dataclass(frozen=True, slots=True)
class AdapterName:
    """An adapter as a request names it. At most one of version and alias is given."""

    adapter: str
    version: int | None = None
    alias: str | None = None


def parse_adapter_name(model: str) -> AdapterName:
    """Parse `model`, which is not the base model's id. Raise NotFound if it cannot name an adapter."""
    match = _GRAMMAR.fullmatch(model)
    if match is None:
        raise model_not_found(model)
    version = match["version"]
    return AdapterName(match["adapter"], int(version) if version else None, match["alias"])


def model_not_found(model: str) -> NotFound:
    """Return the error for a model that does not exist, has an invalid name or belongs to another tenant."""
    return NotFound(
        f"The model '{model}' does not exist or you do not have access to it.",
        param="model",
        code="model_not_found",
    )


async def route_of(scope: TenantScope, model: str) -> Route:
    """Return the route of any name but the base model's. Raise NotFound."""
    try:
        tuned = parse_tuned_name(model)
        if tuned is not None:
            if not await scope.jobs.has_made(model):
                raise model_not_found(model)
            return await scope.adapters.route(tuned.adapter, alias=tuned.alias)
        name = parse_adapter_name(model)
        return await scope.adapters.route(name.adapter, version=name.version, alias=name.alias)
    except errors.NotFound:
        raise model_not_found(model) from None
