"""The limiter: admits requests within the limits of their callers."""

import asyncio
import itertools
import secrets
from contextlib import suppress

from loragate.adapter_store.adapters.adapter import ResolvedAdapter
from loragate.adapter_store.auth.principal import TenantPrincipal
from loragate.adapter_store.store import Store
from loragate.gateway.limits.backend import BackendUnavailable, LimitBackend, OperationResult
from loragate.gateway.limits.errors import limit_exceeded, request_too_large
from loragate.gateway.limits.fallback import LocalShare
from loragate.gateway.limits.lease import Lease, rate_limit_headers
from loragate.gateway.limits.memory_backend import MemoryBackend
from loragate.gateway.limits.metrics import LimitMetrics
from loragate.gateway.limits.observed_state import HeldLease
from loragate.gateway.limits.operations import LeaseRecord, Settle
from loragate.gateway.limits.redis_backend import RedisBackend
from loragate.gateway.limits.subject import Subject, limited_subjects
from loragate.gateway.limits.tenant_pipeline import TenantPipeline
from loragate.gateway.limits.usage_totals import LedgerTotals, UsageTotals
from loragate.gateway.resilience.redis import RedisLink
from loragate.gateway.resilience.timeouts import cancel_and_wait

_RENEW_SECONDS = 10.0
_CLOSE_SECONDS = 2.0  # to settle what is left when the process stops


class Limiter:
    """One per process. While the backend is unavailable, it grants this process's share of the limits on its own."""

    def __init__(self, backend: LimitBackend, share: LocalShare, totals: UsageTotals, metrics: LimitMetrics) -> None:
        self._backend = backend
        self._metrics = metrics
        self._share = share
        self._totals = totals
        self._pipelines: dict[str, TenantPipeline] = {}
        self._renewing: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start renewing granted leases."""
        self._renewing = asyncio.create_task(self._run_renew_loop(), name="limits-renew")

    async def close(self) -> None:
        """Settle leases that have ended, as far as the backend responds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                await asyncio.gather(*(pipeline.wait_settled() for pipeline in self._pipelines.values()))
        for pipeline in self._pipelines.values():
            await pipeline.close()
        if self._renewing is not None:
            await cancel_and_wait(self._renewing)

    @property
    def unsettled(self) -> int:
        """Extensions and settlements that the backend has not acknowledged yet."""
        return sum(pipeline.unsettled for pipeline in self._pipelines.values())

    async def admit(self, caller: TenantPrincipal, adapter: ResolvedAdapter | None, tokens: int) -> Lease:
        """Reserve one request and `tokens`. Raise RateLimited, without reserving anything, if a limit has no room."""
        subjects = limited_subjects(caller, adapter)
        if not subjects:
            return Lease(tokens, {})
        impossible = request_too_large(subjects, tokens)
        if impossible is not None:
            self._metrics.rejected(caller.tenant_id, "size")
            raise impossible
        lease, granted_by, result = await self._reserve(caller.tenant_id, subjects, tokens)
        if result.verdict == "no":
            self._metrics.rejected(caller.tenant_id, result.exceeded[0].kind)
            raise limit_exceeded(result, granted_by, tokens)
        pipeline = self._pipeline(caller.tenant_id)
        pipeline.observed.hold(lease)
        listener = _HeldLeaseListener(caller.tenant_id, pipeline, self._share, lease)
        return Lease(tokens, rate_limit_headers(result, granted_by), listener, lease.record)

    async def settle_interrupted(self, tenant_id: str, lease: LeaseRecord, tokens: int) -> None:
        """Settle the lease of a request whose process has died, before the lease expires and returns its tokens.

        A backend that does not know the tenant's totals is left alone: it will get them from the ledger.
        """
        with suppress(BackendUnavailable):
            await self._backend.execute(tenant_id, "", [Settle(lease.id, tokens, lease.subjects)])

    def extend(self, lease: Lease, caller: TenantPrincipal, adapter: ResolvedAdapter | None, tokens: int) -> Lease:
        """Return the lease of a request that was admitted by an estimate and needs `tokens`, even if no limit has room
        for the rest. Settle it and raise RateLimited if the request exceeds a limit by itself."""
        impossible = request_too_large(limited_subjects(caller, adapter), tokens)
        if impossible is not None:
            self._metrics.rejected(caller.tenant_id, "size")
            lease.settle(0)
            raise impossible
        if tokens > lease.reserved:
            lease.extend(tokens)
        return lease

    async def _reserve(
        self, tenant_id: str, subjects: tuple[Subject, ...], tokens: int
    ) -> tuple[HeldLease, tuple[Subject, ...], OperationResult]:
        """Reserve from the backend, or from this process's share; also return the limits that decided."""
        pipeline = self._pipeline(tenant_id)
        lease = HeldLease(_new_id(), subjects, tokens, granted_locally=False)
        try:
            result = await pipeline.reserve(lease)
        except BackendUnavailable:
            self._metrics.decided_locally()
            local = HeldLease(_new_id(), subjects, tokens, granted_locally=True)
            shares, result = await self._share.reserve(tenant_id, pipeline.observed, subjects, local.id, tokens)
            return local, shares, result
        self._share.discard(tenant_id)
        return lease, subjects, result

    def _pipeline(self, tenant_id: str) -> TenantPipeline:
        pipeline = self._pipelines.get(tenant_id)
        if pipeline is None:
            pipeline = self._pipelines[tenant_id] = TenantPipeline(tenant_id, self._backend, self._totals)
        return pipeline

    async def _run_renew_loop(self) -> None:
        while True:
            await asyncio.sleep(_RENEW_SECONDS)
            for tenant_id, pipeline in list(self._pipelines.items()):
                with suppress(BackendUnavailable):
                    await pipeline.renew()
                if pipeline.is_idle:
                    del self._pipelines[tenant_id]


def open_limiter(redis: RedisLink | None, store: Store, sharers: int, metrics: LimitMetrics) -> Limiter:
    """Return the limiter of one process. Without Redis, the process counts on its own."""
    totals = LedgerTotals(store)
    backend = MemoryBackend() if redis is None else RedisBackend(redis)
    return Limiter(backend, LocalShare(sharers, totals), totals, metrics)


_process = secrets.token_hex(8)
_numbers = itertools.count()


def _new_id() -> str:
    """Return a lease id that is unique among all processes."""
    return f"{_process}{next(_numbers):x}"


class _HeldLeaseListener:
    """Passes a lease's changes on to this process's share, and through the pipeline to the backend."""

    def __init__(self, tenant_id: str, pipeline: TenantPipeline, share: LocalShare, lease: HeldLease) -> None:
        self._tenant_id = tenant_id
        self._pipeline = pipeline
        self._share = share
        self._lease = lease

    def extend(self, tokens: int) -> None:
        self._lease.tokens += tokens
        self._share.extend(self._tenant_id, self._lease, tokens)
        self._pipeline.extend(self._lease, tokens)

    def settle(self, tokens: int) -> None:
        self._share.settle(self._tenant_id, self._lease, tokens)
        self._pipeline.settle(self._lease, tokens)
