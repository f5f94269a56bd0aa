"""From the `model` of a request to the weights that answer it."""

from loragate.adapter_store.adapters.routing import Route
from loragate.adapter_store.auth.principal import TenantPrincipal
from loragate.adapter_store.store import Store
from loragate.gateway.generation.routing import route_of
from loragate.gateway.generation.target import Target
from loragate.gateway.resilience.clock import elapsed
from loragate.gateway.resilience.ttl_cache import Snapshot, Snapshots
from loragate.gateway.text.base_model import BaseModel

_MOST_ROUTES = 20_000


class Resolver:
    """One per process. It hears the store's change notices: an alias that was moved counts from the next request on."""

    def __init__(self, store: Store, lifetime: float) -> None:
        self._store = store
        self._routes: Snapshots[tuple[str, str, str], Route] = Snapshots(lifetime, _MOST_ROUTES)
        store.notices.subscribe(self._routes.forget)

    async def resolve(
        self, caller: TenantPrincipal, base: BaseModel, model: str, sticky_key: str | None = None
    ) -> Target:
        """Of an alias with several versions, always the same one for a `sticky_key`, as long as the alias stays.

        Raises ApiError for what the caller cannot use, and StoreError.
        """
        if model == base.id:
            return Target(caller.tenant_id, adapter=None)
        key = (caller.tenant_id, base.manifest.base_digest, model)  # another base model changes what can be served
        route = await self._routes.of(key, lambda: self._read(caller.tenant_id, model))
        assert route is not None
        return Target(caller.tenant_id, route.pick(sticky_key=sticky_key))

    async def _read(self, tenant_id: str, model: str) -> Snapshot[Route]:
        read_at = elapsed()
        async with self._store.tenant(tenant_id) as scope:
            return Snapshot(await route_of(scope, model), tenant_id, read_at)
