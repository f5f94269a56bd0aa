"""Which secrets there are, since when, and which keys' hashes were made with them."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, func, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.audit.log import AuditLog
from loragate.adapter_store.auth.admin_keys import AdminKeyRepository
from loragate.adapter_store.auth.api_keys import ApiKeyRepository
from loragate.adapter_store.auth.installation import (
    ADMIN_KEY_HASH,
    ADMIN_KEY_SECRET,
    current_secret_id,
    forget_secret,
    read_fact,
    secrets_since,
)
from loragate.adapter_store.auth.secret_key import SecretKeys
from loragate.adapter_store.database.clock import database_now
from loragate.adapter_store.tables.admin_keys import AdminKeyRow
from loragate.adapter_store.tables.responses import (
    ConversationItemRow,
    ConversationRow,
    ResponseEventsRow,
    StoredResponseRow,
)
from loragate.adapter_store.tables.tenants import ApiKeyRow, TenantRow

PRIMARY, ACCEPTED, MISSING = "primary", "accepted", "missing"


@dataclass(frozen=True)
class SecretUse:
    """A secret of this process, or one that the database refers to. The numbers are of keys that are neither revoked
    nor expired; keys whose secret is not known count for each secret."""

    id: str
    state: str  # PRIMARY or ACCEPTED by this process' settings, else MISSING there
    is_current: bool  # it became the primary one last
    since: datetime | None  # it was first the primary one; None: never, or before this was recorded
    api_keys: int
    admin_keys: int  # named ones, and the installation's
    sealed: int = 0  # rows of stored responses and conversations, which gateways reseal with the primary secret

    @property
    def keys(self) -> int:
        return self.api_keys + self.admin_keys


@dataclass(frozen=True)
class Dependents:
    """The ids of keys whose hashes were made with one secret, and which are neither revoked nor expired."""

    api_keys: tuple[str, ...]
    admin_keys: tuple[str, ...]


async def secret_uses(session: AsyncSession, secret_keys: SecretKeys) -> list[SecretUse]:
    """Return the secrets that are set, the primary one first, then those that the database alone knows of."""
    since, current = await secrets_since(session), await current_secret_id(session)
    api_keys = await _counted(session, ApiKeyRow)
    admin_keys = await _counted(session, AdminKeyRow)
    if await read_fact(session, ADMIN_KEY_HASH) is not None:
        of_admin = await read_fact(session, ADMIN_KEY_SECRET)
        made_with = None if of_admin is None else of_admin.decode()
        admin_keys[made_with] = admin_keys.get(made_with, 0) + 1
    sealed = await _sealed(session)
    named = [each for each in (*api_keys, *admin_keys, *sealed) if each is not None]
    return [
        SecretUse(
            id=each,
            state=PRIMARY if each == secret_keys.ids[0] else ACCEPTED if each in secret_keys.ids else MISSING,
            is_current=each == current,
            since=since.get(each),
            api_keys=api_keys.get(each, 0) + api_keys.get(None, 0),
            admin_keys=admin_keys.get(each, 0) + admin_keys.get(None, 0),
            sealed=sealed.get(each, 0),
        )
        for each in dict.fromkeys((*secret_keys.ids, *since, *named))
    ]


class SecretRepository:
    """Part of an operator's AdminScope."""

    def __init__(
        self, session: AsyncSession, keys: ApiKeyRepository, admin_keys: AdminKeyRepository, audit: AuditLog
    ) -> None:
        self._session = session
        self._keys = keys
        self._admin_keys = admin_keys
        self._audit = audit

    async def retire(self, retired: str) -> Dependents:
        """Forget a secret, and revoke the keys that depend on it. Return those keys."""
        lost = Dependents(await self._dependents(ApiKeyRow, retired), await self._dependents(AdminKeyRow, retired))
        for key_id in lost.api_keys:
            await self._keys.revoke(key_id)
        for key_id in lost.admin_keys:
            await self._admin_keys.revoke(key_id)
        await forget_secret(self._session, retired)
        await self._audit.record("secret_key.retire", f"secret_key:{retired}")
        return lost

    async def _dependents(self, kind: type[ApiKeyRow] | type[AdminKeyRow], made_with: str) -> tuple[str, ...]:
        query = select(kind.id).where(*_alive(kind), kind.secret_id == made_with).order_by(kind.id)
        return tuple(await self._session.scalars(query))


async def _counted(session: AsyncSession, kind: type[ApiKeyRow] | type[AdminKeyRow]) -> dict[str | None, int]:
    query = select(kind.secret_id, func.count()).where(*_alive(kind)).group_by(kind.secret_id)
    return dict((await session.execute(query)).tuples().all())


async def _sealed(session: AsyncSession) -> dict[str, int]:
    counts: dict[str, int] = {}
    for row in (StoredResponseRow, ResponseEventsRow, ConversationRow, ConversationItemRow):
        query = select(row.secret_id, func.count()).group_by(row.secret_id)
        for made_with, count in (await session.execute(query)).tuples():
            counts[made_with] = counts.get(made_with, 0) + count
    return counts


def _alive(kind: type[ApiKeyRow] | type[AdminKeyRow]) -> tuple[ColumnElement[bool], ...]:
    living = (kind.revoked_at.is_(None), or_(kind.expires_at.is_(None), kind.expires_at > database_now()))
    if issubclass(kind, AdminKeyRow):
        return living
    return *living, ApiKeyRow.tenant_id.in_(select(TenantRow.id).where(TenantRow.deleted_at.is_(None)))
