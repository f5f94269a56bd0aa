"""Whether this process can serve, and if not, why."""

import asyncio

from loragate.adapter_store.errors import StoreError
from loragate.gateway.services import Services

_OK = "ok"
_DATABASE_SECONDS = 2.0


async def readiness(services: Services) -> dict[str, str]:
    """Each part with "ok" or the reason why it is not."""
    return {
        "gateway": "shutting down" if services.lifecycle.draining else _OK,
        "database": await _database(services),
        "engine": _OK if services.link.ready else "not connected",
    }


def is_ready(parts: dict[str, str]) -> bool:
    """Nothing is missing."""
    return all(state == _OK for state in parts.values())


async def _database(services: Services) -> str:
    try:
        async with asyncio.timeout(_DATABASE_SECONDS), services.store.admin() as admin:
            await admin.tenants.list(limit=1)
    except (StoreError, TimeoutError):
        return "not reachable"
    return _OK
