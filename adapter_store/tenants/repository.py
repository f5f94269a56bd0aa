"""The repository of tenants, for the operator."""

import math
from collections.abc import Collection, Mapping, Sequence

from sqlalchemy import ColumnElement, insert, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.audit.log import AuditLog, facts_of
from loragate.adapter_store.database.clock import database_now
from loragate.adapter_store.database.keyset import newest_first
from loragate.adapter_store.database.page import DEFAULT_LIMIT, Page
from loragate.adapter_store.database.tenant_session import tenant_of
from loragate.adapter_store.errors import Conflict, Invalid, NotFound
from loragate.adapter_store.ids import new_id
from loragate.adapter_store.jobs.job import JobStatus
from loragate.adapter_store.limits import UNLIMITED_TENANT, TenantLimits
from loragate.adapter_store.names import check_label, could_be_id
from loragate.adapter_store.signatures.policy import SignaturePolicy
from loragate.adapter_store.tables.jobs import JobRow
from loragate.adapter_store.tables.tenants import ApiKeyRow, TenantRow
from loragate.adapter_store.tenants.deletion import delete_owned
from loragate.adapter_store.tenants.tenant import Tenant
from loragate.adapter_store.timestamps import utc_now

_MIN_WEIGHT, _MAX_WEIGHT = 0.01, 100.0


class TenantRepository:
    """Part of an AdminScope; within a tenant, it sees that tenant only."""

    def __init__(self, session: AsyncSession, audit: AuditLog, signatures: SignaturePolicy) -> None:
        self._session = session
        self._audit = audit
        self._signatures = signatures

    async def create(
        self,
        name: str,
        *,
        weight: float = 1.0,
        limits: TenantLimits = UNLIMITED_TENANT,
        signers: Sequence[str] = (),
    ) -> Tenant:
        """Create a tenant. Raise Invalid, and Conflict if another tenant has the name."""
        check_label(name)
        _check_weight(weight)
        self._signatures.check_names(signers)
        await self._require_free(name)
        now = utc_now()
        tenant = Tenant(new_id("tn"), name, weight, limits, created_at=now, updated_at=now, signers=tuple(signers))
        row = insert(TenantRow).values(
            id=tenant.id,
            name=name,
            weight=weight,
            limits=limits,
            signers=tenant.signers,
            created_at=now,
            updated_at=now,
        )
        await self._session.execute(row)
        await self._audit.record("tenant.create", _target(tenant.id), tenant=tenant.id, after=facts_of(tenant))
        return tenant

    async def get(self, tenant_id: str) -> Tenant:
        return _tenant_of(await require_tenant(self._session, tenant_id))

    async def list(self, *, after: str | None = None, limit: int = DEFAULT_LIMIT) -> Page[Tenant]:
        """Return tenants, newest first; `after` is the id of the last one seen."""
        where: list[ColumnElement[bool]] = [TenantRow.deleted_at.is_(None)]
        own = tenant_of(self._session)
        if own is not None:
            where.append(TenantRow.id == own)
        page = await newest_first(self._session, TenantRow, *where, after=after, limit=limit)
        return Page(tuple(_tenant_of(row) for row in page), page.has_more)

    async def names(self, tenant_ids: Collection[str]) -> dict[str, str]:
        """Return names by id, also of deleted tenants; unknown ids are left out."""
        reach = tenant_of(self._session)
        found = select(TenantRow.id, TenantRow.name).where(TenantRow.id.in_(tenant_ids))
        rows = await self._session.execute(found if reach is None else found.where(TenantRow.id == reach))
        return {row.id: row.name for row in rows}

    async def update(
        self,
        tenant_id: str,
        *,
        name: str | None = None,
        weight: float | None = None,
        limits: Mapping[str, int | None] | None = None,
        signers: Sequence[str] | None = None,
        store_responses_by_default: bool | None = None,
    ) -> Tenant:
        """Change the given values; `limits` one by one. Raise Invalid, and Conflict for the name."""
        tenant = await self.get(tenant_id)
        if name is not None and name != tenant.name:
            await self._require_free(check_label(name))
        if weight is not None:
            _check_weight(weight)
        self._signatures.check_names(signers or ())
        changes: dict[str, object] = {
            "name": tenant.name if name is None else name,
            "weight": tenant.weight if weight is None else weight,
            "limits": tenant.limits.merged(limits or {}),
            "signers": tenant.signers if signers is None else tuple(signers),
            "updated_at": utc_now(),
        }
        if store_responses_by_default is not None:
            changes["store_responses_by_default"] = store_responses_by_default
        await self._session.execute(update(TenantRow).where(TenantRow.id == tenant_id).values(**changes))
        updated = await self.get(tenant_id)
        await self._audit.record_change("tenant.update", _target(tenant_id), tenant_id, tenant, updated)
        return updated

    async def delete(self, tenant_id: str) -> None:
        """Delete the tenant, revoke its keys and cancel its jobs, in one transaction. Its adapters and files go with it
        or, where they are many, in the batches of the next sweep."""
        tenant, now = await self.get(tenant_id), utc_now()
        # The tenant first: on Postgres this waits for its writers, and the next statements see their changes.
        await self._session.execute(update(TenantRow).where(TenantRow.id == tenant_id).values(deleted_at=now))
        await delete_owned(self._session, tenant_id, now)
        keys = update(ApiKeyRow).where(ApiKeyRow.tenant_id == tenant_id, ApiKeyRow.revoked_at.is_(None))
        await self._session.execute(keys.values(revoked_at=now))
        jobs = update(JobRow).where(JobRow.tenant_id == tenant_id, JobRow.finished_at.is_(None))
        free = {"worker": None, "held_until": None, "wanted": None}
        await self._session.execute(jobs.values(status=JobStatus.CANCELLED, finished_at=database_now(), **free))
        await self._audit.record("tenant.delete", _target(tenant_id), tenant=tenant_id, before=facts_of(tenant))

    async def _require_free(self, name: str) -> None:
        taken = select(TenantRow.id).where(TenantRow.name == name, TenantRow.deleted_at.is_(None))
        if await self._session.scalar(taken) is not None:
            raise Conflict(f"A tenant named `{name}` already exists.", code="name_taken", param="name")


async def require_tenant(session: AsyncSession, tenant_id: str) -> TenantRow:
    query = select(TenantRow).where(TenantRow.id == tenant_id, TenantRow.deleted_at.is_(None))
    within_reach = could_be_id(tenant_id) and tenant_of(session) in (None, tenant_id)
    row = (await session.scalars(query)).one_or_none() if within_reach else None
    if row is None:
        raise tenant_not_found()
    return row


def tenant_not_found() -> NotFound:
    return NotFound("The tenant does not exist.", code="tenant_not_found", param="tenant_id")


def _target(tenant_id: str) -> str:
    return f"tenant:{tenant_id}"


def _check_weight(weight: float) -> None:
    if not math.isfinite(weight) or not _MIN_WEIGHT <= weight <= _MAX_WEIGHT:
        raise Invalid(f"`weight` must be between {_MIN_WEIGHT} and {_MAX_WEIGHT}.", param="weight")


def _tenant_of(row: TenantRow) -> Tenant:
    return Tenant(
        id=row.id,
        name=row.name,
        weight=row.weight,
        limits=row.limits,
        signers=row.signers,
        store_responses_by_default=row.store_responses_by_default,
        created_at=row.created_at,
        updated_at=row.updated_at,
    )
