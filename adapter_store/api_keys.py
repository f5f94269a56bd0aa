"""The operator's view of tenants' API keys."""

from collections.abc import Collection
from datetime import datetime, timedelta

from sqlalchemy import insert, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.api_key import ApiKey, NewApiKey
from loragate.adapter_store.credentials import KeyHasher, new_key_text
from loragate.adapter_store.cursor import newest_first
from loragate.adapter_store.errors import Conflict, Invalid, NotFound
from loragate.adapter_store.names import check_label, could_be_id
from loragate.adapter_store.page import DEFAULT_LIMIT, Page
from loragate.adapter_store.principal import Scope
from loragate.adapter_store.tables import ApiKeyRow
from loragate.adapter_store.tenants import require_tenant
from loragate.adapter_store.times import utc_now

MAX_GRACE_SECONDS = 30 * 24 * 3600


class ApiKeyRepository:
    """Part of an AdminScope."""

    def __init__(self, session: AsyncSession, hasher: KeyHasher) -> None:
        self._session = session
        self._hasher = hasher

    async def create(
        self,
        tenant_id: str,
        *,
        name: str = "",
        scopes: Collection[str] = (Scope.ALL,),
        expires_at: datetime | None = None,
    ) -> NewApiKey:
        """The only time that the whole key is known. Raises NotFound for the tenant, Invalid for the rest."""
        await require_tenant(self._session, tenant_id)
        check_label(name, required=False)
        return await self._add(tenant_id, name, _checked_scopes(scopes), _checked_expiry(expires_at))

    async def get(self, key_id: str) -> ApiKey:
        return key_of(await self._require(key_id))

    async def list(self, tenant_id: str, *, after: str | None = None, limit: int = DEFAULT_LIMIT) -> Page[ApiKey]:
        """Newest first, revoked ones too; `after` is the id of the last one seen."""
        await require_tenant(self._session, tenant_id)
        page = await newest_first(self._session, ApiKeyRow, ApiKeyRow.tenant_id == tenant_id, after=after, limit=limit)
        return Page(tuple(key_of(row) for row in page), page.has_more)

    async def revoke(self, key_id: str) -> ApiKey:
        """The key stops working at once. Revoking it again changes nothing."""
        row = await self._require(key_id)
        if row.revoked_at is None:
            await self._change(key_id, revoked_at=utc_now())
        return await self.get(key_id)

    async def rotate(self, key_id: str, *, grace_seconds: int = 0) -> NewApiKey:
        """A new key with the old one's name, scopes and expiry; the old one works `grace_seconds` longer.

        Raises Conflict when the old one does not work any more.
        """
        if not 0 <= grace_seconds <= MAX_GRACE_SECONDS:
            raise Invalid(f"`grace_seconds` must be between 0 and {MAX_GRACE_SECONDS}.", param="grace_seconds")
        old, now = await self.get(key_id), utc_now()
        if old.revoked_at is not None or (old.expires_at is not None and old.expires_at <= now):
            raise Conflict("The key is revoked or expired; create a new one instead.", code="key_not_active")
        end = now + timedelta(seconds=grace_seconds)
        await self._change(key_id, expires_at=end if old.expires_at is None else min(end, old.expires_at))
        return await self._add(old.tenant_id, old.name, old.scopes, old.expires_at, rotated_from=key_id)

    async def _require(self, key_id: str) -> ApiKeyRow:
        query = select(ApiKeyRow).where(ApiKeyRow.id == key_id)
        row = (await self._session.scalars(query)).one_or_none() if could_be_id(key_id) else None
        if row is None:
            raise NotFound("The key does not exist.", code="key_not_found", param="key_id")
        return row

    async def _change(self, key_id: str, **values: datetime) -> None:
        await self._session.execute(update(ApiKeyRow).where(ApiKeyRow.id == key_id).values(**values))

    async def _add(
        self,
        tenant_id: str,
        name: str,
        scopes: tuple[Scope, ...],
        expires_at: datetime | None,
        *,
        rotated_from: str | None = None,
    ) -> NewApiKey:
        text, now = new_key_text(), utc_now()
        await self._session.execute(
            insert(ApiKeyRow).values(
                id=text.public_id,
                tenant_id=tenant_id,
                name=name,
                key_hash=self._hasher.hash(text.whole),
                scopes=" ".join(scopes),
                expires_at=expires_at,
                rotated_from=rotated_from,
                created_at=now,
            )
        )
        return NewApiKey(await self.get(text.public_id), text.whole)


def scopes_of(row: ApiKeyRow) -> tuple[Scope, ...]:
    return tuple(Scope(scope) for scope in row.scopes.split())


def key_of(row: ApiKeyRow) -> ApiKey:
    return ApiKey(
        id=row.id,
        tenant_id=row.tenant_id,
        name=row.name,
        scopes=scopes_of(row),
        expires_at=row.expires_at,
        revoked_at=row.revoked_at,
        rotated_from=row.rotated_from,
        created_at=row.created_at,
    )


def _checked_scopes(scopes: Collection[str]) -> tuple[Scope, ...]:
    known = {scope.value for scope in Scope}
    if not scopes or not known.issuperset(scopes):
        raise Invalid(f"`scopes` must be some of {', '.join(sorted(known))}.", param="scopes")
    return tuple(sorted({Scope(scope) for scope in scopes}))


def _checked_expiry(expires_at: datetime | None) -> datetime | None:
    if expires_at is not None and (expires_at.tzinfo is None or expires_at <= utc_now()):
        raise Invalid("`expires_at` must be a time in the future, with its zone.", param="expires_at")
    return expires_at
