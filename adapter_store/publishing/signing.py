"""The signatures of one tenant's adapters."""

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.database.tenant_session import tenant_of
from loragate.adapter_store.signatures.policy import SignaturePolicy, TenantPolicy
from loragate.adapter_store.tables.base import TenantRow


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
