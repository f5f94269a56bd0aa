"""Tenants' names, for the operator's pages."""

import asyncio
from collections.abc import Iterable

from loragate.panel.api import Api, ApiError, SignedOut, path

_MAX_CONCURRENT = 8


class TenantNames:
    """A cache for one page, which requests each unknown tenant once."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._names: dict[str, str] = {}
        self._slots = asyncio.Semaphore(_MAX_CONCURRENT)

    async def fetch(self, tenant_ids: Iterable[str | None]) -> None:
        """Fetch the names of these tenants. Raise ApiError."""
        unknown = {each for each in tenant_ids if each} - self._names.keys()
        if unknown and not self._names:
            self._names = {each["id"]: each["name"] for each in await self._api.list_all("/admin/v1/tenants")}
            unknown -= self._names.keys()
        await asyncio.gather(*map(self._fetch, unknown))

    def name(self, tenant_id: str | None) -> str:
        """Return the tenant's name, or the id of one that no longer exists."""
        return self._names.get(tenant_id or "") or tenant_id or ""

    async def _fetch(self, tenant_id: str) -> None:
        try:
            async with self._slots:
                self._names[tenant_id] = (await self._api.get(path("admin", "v1", "tenants", tenant_id)))["name"]
        except SignedOut:
            raise
        except ApiError as failure:
            if failure.status != 404:
                raise
            self._names[tenant_id] = tenant_id
