"""Metrics of the versions behind an alias, by which a canary is judged."""

from datetime import timedelta

from loragate.adapter_store.adapters.aliases import alias_not_found
from loragate.adapter_store.auth.principal import TenantPrincipal
from loragate.adapter_store.timestamps import utc_now
from loragate.adapter_store.usage.target_usage import AliasTargetQuery, AliasTargetUsage
from loragate.gateway.objects.alias_metrics import AliasMetrics, alias_metrics_object
from loragate.gateway.services import Services


async def alias_metrics(use: Services, caller: TenantPrincipal, name: str, alias: str, hours: int) -> AliasMetrics:
    """Return the metrics of the last hours for each version that the alias points to or pointed to. Raise NotFound."""
    end = utc_now()
    async with use.store.tenant(caller.tenant_id) as scope:
        adapter = await scope.adapters.get(name)
        if alias not in adapter.aliases:
            raise alias_not_found()
        start = max(end - timedelta(hours=hours), adapter.created_at)  # an earlier adapter may have had the same name
        found = await scope.usage.targets(AliasTargetQuery(name, alias, start, end))
    used = {usage.version: usage for usage in found}
    weights = {target.version: target.weight for target in adapter.aliases[alias]}
    versions = sorted(weights.keys() | used.keys())
    rows = [used.get(version, AliasTargetUsage(version)) for version in versions]
    return alias_metrics_object(name, alias, start, end, rows, weights)
