"""What tenants are called, for the operator's pages."""

import asyncio
from collections.abc import Iterable

from loragate.panel.api import Api, path
from loragate.panel.failure import Failure, SignedOut

_AT_ONCE = 8


class TenantNames:
    """One a page. Asks for the tenants that it does not know, and once for each."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._names: dict[str, str] = {}
        self._asking = asyncio.Semaphore(_AT_ONCE)

    async def learn(self, tenant_ids: Iterable[str | None]) -> None:
        """Raises Failure where nobody answers."""
        unknown = {each for each in tenant_ids if each} - self._names.keys()
        if unknown and not self._names:
            self._names = {each["id"]: each["name"] for each in await self._api.everything("/admin/v1/tenants")}
            unknown -= self._names.keys()
        await asyncio.gather(*map(self._learn, unknown))

    def name(self, tenant_id: str | None) -> str:
        """Of one that is gone it is the id."""
        return self._names.get(tenant_id or "") or tenant_id or ""

    async def _learn(self, tenant_id: str) -> None:
        try:
            async with self._asking:
                self._names[tenant_id] = (await self._api.get(path("admin", "v1", "tenants", tenant_id)))["name"]
        except SignedOut:
            raise
        except Failure as failure:
            if failure.status != 404:
                raise
            self._names[tenant_id] = tenant_id
