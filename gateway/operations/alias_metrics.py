"""How the versions behind an alias do: what a canary is judged by."""

from datetime import timedelta
from typing import Any

from loragate.adapter_store.adapters.aliases import alias_not_found
from loragate.adapter_store.auth.principal import TenantPrincipal
from loragate.adapter_store.timestamps import rfc3339, utc_now
from loragate.adapter_store.usage.target_usage import AliasTargetQuery, AliasTargetUsage
from loragate.gateway.objects.usage import first_token_object
from loragate.gateway.services import Services


async def alias_metrics(use: Services, caller: TenantPrincipal, name: str, alias: str, hours: int) -> dict[str, Any]:
    """Of the last hours, by version: those that the alias points at, and those that it did. Raises NotFound."""
    end = utc_now()
    async with use.store.tenant(caller.tenant_id) as scope:
        adapter = await scope.adapters.get(name)
        if alias not in adapter.aliases:
            raise alias_not_found()
        start = max(end - timedelta(hours=hours), adapter.created_at)  # another one may have had the name before
        found = await scope.usage.targets(AliasTargetQuery(name, alias, start, end))
    used = {usage.version: usage for usage in found}
    weights = {target.version: target.weight for target in adapter.aliases[alias]}
    versions = sorted(weights.keys() | used.keys())
    return {
        "id": f"{name}@{alias}",
        "object": "adapter.alias.metrics",
        "name": name,
        "alias": alias,
        "start": rfc3339(start),
        "end": rfc3339(end),
        "targets": [
            _target_object(used.get(version, AliasTargetUsage(version)), weights.get(version)) for version in versions
        ],
    }


def _target_object(usage: AliasTargetUsage, weight: int | None) -> dict[str, Any]:
    return {
        "version": usage.version,
        "weight": weight,
        "requests": usage.requests,
        "errors": usage.errors,
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "ttft_ms": first_token_object(usage.first_token),
    }
