"""The limits that one process grants on its own while the shared backend is unavailable."""

import secrets
from dataclasses import replace

from loragate.gateway.limits.backend import WINDOW, OperationResult
from loragate.gateway.limits.memory_backend import MemoryBackend
from loragate.gateway.limits.observed_state import HeldLease, ObservedState
from loragate.gateway.limits.operations import Extend, Operation, Reserve, Restore, Settle, SubjectUsage, WindowTotal
from loragate.gateway.limits.subject import Subject
from loragate.gateway.limits.usage_totals import UsageTotals

_LEASE_LIFETIME = 24 * 60 * WINDOW  # its leases end with this process, which settles them


class LocalShare:
    """This process's share, max(1, limit ÷ sharers), of every limit.

    It starts from the last state of the shared backend that this process observed.
    """

    def __init__(self, sharers: int, totals: UsageTotals) -> None:
        assert sharers >= 1
        self._sharers = sharers
        self._totals = totals
        self._backend = MemoryBackend()
        self._leases: set[str] = set()

    async def reserve(
        self, tenant_id: str, observed: ObservedState, subjects: tuple[Subject, ...], lease_id: str, tokens: int
    ) -> tuple[tuple[Subject, ...], OperationResult]:
        """Return the subjects with their shares, and the result of reserving from those."""
        shares = tuple(subject.share(self._sharers) for subject in subjects)
        reserve = Reserve(lease_id, tokens, shares, _LEASE_LIFETIME)
        result = self._execute(tenant_id, reserve)
        if result.verdict == "lost":
            await self._restore(tenant_id, observed, subjects, result.now)
            result = self._execute(tenant_id, reserve)
        if result.verdict == "ok":
            self._leases.add(lease_id)
        return shares, result

    def extend(self, tenant_id: str, lease: HeldLease, tokens: int) -> None:
        """Extend a lease that was granted here; do nothing for others."""
        if lease.id in self._leases:
            self._execute(tenant_id, Extend(lease.id, tokens, lease.subjects, _LEASE_LIFETIME))

    def settle(self, tenant_id: str, lease: HeldLease, tokens: int) -> None:
        """Settle a lease that was granted here; do nothing for others."""
        if lease.id in self._leases:
            self._leases.remove(lease.id)
            self._execute(tenant_id, Settle(lease.id, tokens, lease.subjects))

    def discard(self, tenant_id: str) -> None:
        """Discard the tenant's state because the shared backend, which knows more, is available again."""
        self._backend.discard(tenant_id)

    def _execute(self, tenant_id: str, operation: Operation) -> OperationResult:
        return self._backend.execute_now(tenant_id, "", [operation]).results[0]

    async def _restore(
        self, tenant_id: str, observed: ObservedState, subjects: tuple[Subject, ...], now: float
    ) -> None:
        running = [lease for lease in observed.held.values() if not lease.granted_locally]
        self._leases.update(lease.id for lease in running)
        known = [*observed.usage(now), *await self._totals.fetch(tenant_id, subjects, now)]
        restore = Restore(
            fresh=secrets.token_hex(8),
            usage=[self._share_of(each) for each in known],
            leases=[lease.record for lease in running],
            lifetime=_LEASE_LIFETIME,
        )
        self._execute(tenant_id, restore)

    def _share_of(self, usage: SubjectUsage) -> SubjectUsage:
        """Divide the totals. Buckets are times, which need no dividing; other processes' leases do not count here."""
        return replace(
            usage,
            buckets=None if usage.buckets is None else replace(usage.buckets, in_flight=0),
            day=self._divided(usage.day),
            month=self._divided(usage.month),
        )

    def _divided(self, total: WindowTotal | None) -> WindowTotal | None:
        return None if total is None else replace(total, tokens=total.tokens // self._sharers)
