"""The repository of tenants' API keys, for the operator and tenants' administrators."""

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta

from sqlalchemy import Table, bindparam, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.audit.log import AuditLog, facts_of
from loragate.adapter_store.auth.api_key import ApiKey, NewApiKey
from loragate.adapter_store.auth.credentials import KeyFormat, KeyHasher
from loragate.adapter_store.auth.principal import Scope
from loragate.adapter_store.database.clock import current_time
from loragate.adapter_store.database.keyset import newest_first
from loragate.adapter_store.database.page import DEFAULT_LIMIT, Page
from loragate.adapter_store.errors import Conflict, Invalid, NotFound
from loragate.adapter_store.limits import UNLIMITED, Limits
from loragate.adapter_store.names import check_label, could_be_id
from loragate.adapter_store.tables.admin_keys import AdminKeyRow
from loragate.adapter_store.tables.tenants import ApiKeyRow
from loragate.adapter_store.tenants.repository import require_tenant
from loragate.adapter_store.timestamps import utc_now

MAX_GRACE_SECONDS = 30 * 24 * 3600


class ApiKeyRepository:
    """Part of an AdminScope; within a tenant, it sees that tenant's keys only."""

    def __init__(self, session: AsyncSession, key_format: KeyFormat, hasher: KeyHasher, audit: AuditLog) -> None:
        self._session = session
        self._format = key_format
        self._hasher = hasher
        self._audit = audit

    async def create(
        self,
        tenant_id: str,
        *,
        name: str = "",
        scopes: Collection[str] = (Scope.ALL,),
        expires_at: datetime | None = None,
        limits: Limits = UNLIMITED,
    ) -> NewApiKey:
        """Create a key; only this call returns its whole text. Raise NotFound for the tenant, Invalid for the rest."""
        await require_tenant(self._session, tenant_id)
        check_label(name, required=False)
        new = await self._add(tenant_id, name, _checked_scopes(scopes), check_expiry(expires_at), limits)
        await self._audit.record("api_key.create", _target(new.key.id), tenant=tenant_id, after=facts_of(new.key))
        return new

    async def get(self, key_id: str) -> ApiKey:
        return key_of(await self._require(key_id))

    async def list(self, tenant_id: str, *, after: str | None = None, limit: int = DEFAULT_LIMIT) -> Page[ApiKey]:
        """Return keys, newest first, including revoked ones; `after` is the id of the last one seen."""
        await require_tenant(self._session, tenant_id)
        page = await newest_first(self._session, ApiKeyRow, ApiKeyRow.tenant_id == tenant_id, after=after, limit=limit)
        return Page(tuple(key_of(row) for row in page), page.has_more)

    async def limit(self, key_id: str, limits: Mapping[str, int | None]) -> ApiKey:
        """Replace the given limits. Raise Invalid."""
        key = await self._lock(key_id)
        return await self._change("api_key.limit", key, limits=key.limits.merged(limits))

    async def revoke(self, key_id: str) -> ApiKey:
        """Revoke a key, with immediate effect. Revoking it again changes nothing."""
        key = await self._lock(key_id)
        if key.revoked_at is not None:
            return key
        return await self._change("api_key.revoke", key, revoked_at=utc_now())

    async def rotate(self, key_id: str, *, grace_seconds: int = 0) -> NewApiKey:
        """Create a key with the old one's name, scopes, limits and expiry; the old one works `grace_seconds` longer.

        Raise Conflict if the old key is revoked or expired.
        """
        if not 0 <= grace_seconds <= MAX_GRACE_SECONDS:
            raise Invalid(f"`grace_seconds` must be between 0 and {MAX_GRACE_SECONDS}.", param="grace_seconds")
        old, now = await self._lock(key_id), await current_time(self._session)
        if old.revoked_at is not None or (old.expires_at is not None and old.expires_at <= now):
            raise Conflict("The key is revoked or expired; create a new one instead.", code="key_not_active")
        if grace_seconds == 0:
            await self._change("api_key.revoke", old, revoked_at=now)
        else:
            end = now + timedelta(seconds=grace_seconds)
            sooner = end if old.expires_at is None else min(end, old.expires_at)
            await self._change("api_key.expire", old, expires_at=sooner)
        new = await self._add(old.tenant_id, old.name, old.scopes, old.expires_at, old.limits, rotated_from=key_id)
        await self._audit.record("api_key.rotate", _target(new.key.id), tenant=old.tenant_id, after=facts_of(new.key))
        return new

    async def record_use(self, last_used: Mapping[str, datetime]) -> None:
        """Record when keys were last used, by key id. Later recorded times stay; unknown keys are ignored."""
        await record_use(self._session, ApiKeyRow, last_used)

    async def _require(self, key_id: str, *, lock: bool = False) -> ApiKeyRow:
        query = select(ApiKeyRow).where(ApiKeyRow.id == key_id)
        if lock:
            query = query.with_for_update()
        row = (await self._session.scalars(query)).one_or_none() if could_be_id(key_id) else None
        if row is None:
            raise NotFound("The key does not exist.", code="key_not_found", param="key_id")
        return row

    async def _lock(self, key_id: str) -> ApiKey:
        """Return a key and lock it: the tenant's administrator and the operator may change it at the same time."""
        return key_of(await self._require(key_id, lock=True))

    async def _change(self, action: str, key: ApiKey, **values: datetime | Limits) -> ApiKey:
        await self._session.execute(update(ApiKeyRow).where(ApiKeyRow.id == key.id).values(**values))
        changed = await self.get(key.id)
        await self._audit.record_change(action, _target(key.id), key.tenant_id, key, changed)
        return changed

    async def _add(
        self,
        tenant_id: str,
        name: str,
        scopes: tuple[Scope, ...],
        expires_at: datetime | None,
        limits: Limits,
        *,
        rotated_from: str | None = None,
    ) -> NewApiKey:
        text, now = self._format.new_key(), utc_now()
        await self._session.execute(
            insert(ApiKeyRow).values(
                id=text.public_id,
                tenant_id=tenant_id,
                name=name,
                key_hash=self._hasher.hash(text.whole),
                secret_id=self._hasher.primary_id,
                scopes=" ".join(scopes),
                limits=limits,
                expires_at=expires_at,
                rotated_from=rotated_from,
                created_at=now,
            )
        )
        return NewApiKey(await self.get(text.public_id), text.whole)


async def record_use(
    session: AsyncSession, kind: type[ApiKeyRow] | type[AdminKeyRow], last_used: Mapping[str, datetime]
) -> None:
    """Record when keys were last used, by key id. Later recorded times stay; unknown keys are ignored."""
    if not last_used:
        return
    keys = kind.__table__
    assert isinstance(keys, Table)
    moment = bindparam("moment", type_=keys.c.last_used_at.type)
    later = or_(keys.c.last_used_at.is_(None), keys.c.last_used_at < moment)
    query = update(keys).where(keys.c.id == bindparam("key_id"), later).values(last_used_at=moment)
    rows = [{"key_id": key_id, "moment": last_used[key_id]} for key_id in sorted(last_used)]
    await (await session.connection()).execute(query, rows)


def scopes_of(row: ApiKeyRow) -> tuple[Scope, ...]:
    return tuple(Scope(scope) for scope in row.scopes.split())


def key_of(row: ApiKeyRow) -> ApiKey:
    return ApiKey(
        id=row.id,
        tenant_id=row.tenant_id,
        name=row.name,
        scopes=scopes_of(row),
        limits=row.limits,
        expires_at=row.expires_at,
        revoked_at=row.revoked_at,
        rotated_from=row.rotated_from,
        last_used_at=row.last_used_at,
        created_at=row.created_at,
    )


def _target(key_id: str) -> str:
    return f"api_key:{key_id}"


def _checked_scopes(scopes: Collection[str]) -> tuple[Scope, ...]:
    known = {scope.value for scope in Scope}
    if not scopes or not known.issuperset(scopes):
        raise Invalid(f"`scopes` must be some of {', '.join(sorted(known))}.", param="scopes")
    return tuple(sorted({Scope(scope) for scope in scopes}))


def check_expiry(expires_at: datetime | None) -> datetime | None:
    """Return the time at which a new key expires. Raise Invalid."""
    if expires_at is not None and (expires_at.tzinfo is None or expires_at <= utc_now()):
        raise Invalid("`expires_at` must be a time in the future, with a time zone.", param="expires_at")
    return expires_at
