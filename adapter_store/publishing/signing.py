"""The signatures of one tenant's adapters."""

from dataclasses import dataclass

from sqlalchemy import and_, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.adapters.adapter import VersionStatus
from loragate.adapter_store.database.tenant_session import tenant_of
from loragate.adapter_store.signatures.policy import SignaturePolicy, TenantPolicy
from loragate.adapter_store.tables.adapters import AdapterVersionRow
from loragate.adapter_store.tables.tenants import TenantRow


class TenantSignatures:
    """Part of a TenantScope: the operator's policy, as it holds for the tenant."""

    def __init__(self, session: AsyncSession, policy: SignaturePolicy) -> None:
        self._session = session
        self._policy = policy

    async def policy(self) -> TenantPolicy:
        """Return the policy that holds for the tenant now."""
        row = TenantRow
        names = await self._session.scalar(select(row.signers).where(row.id == tenant_of(self._session)))
        return self._policy.of(names or ())

    async def require_trusted_training(self) -> None:
        """Raise Conflict if an adapter that is trained here could not be published, because it is not signed."""
        (await self.policy()).trainer()


@dataclass(frozen=True, slots=True)
class SignedVersions:
    """The number of a tenant's ready versions with one signer; None: with none."""

    tenant: str
    tenant_signers: tuple[str, ...]
    signer: str | None
    versions: int


async def served_by_signer(session: AsyncSession) -> list[SignedVersions]:
    """Count the ready versions of all tenants by their signer. Needs the operator's session."""
    row, tenant = AdapterVersionRow, TenantRow
    query = (
        select(tenant.name, tenant.signers, row.signer, func.count(row.version))
        .join(tenant, and_(tenant.id == row.tenant_id, tenant.deleted_at.is_(None)))
        .where(row.status == VersionStatus.READY.value, row.deleted_at.is_(None))
        .group_by(tenant.id, tenant.name, tenant.signers, row.signer)
    )
    return [SignedVersions(*found) for found in await session.execute(query)]
