"""A worker's lease of a job, renewed while the worker runs it."""

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from loragate.adapter_store.errors import NotFound, StoreError
from loragate.adapter_store.jobs.job import Job
from loragate.adapter_store.jobs.lease import LEASE, JobLease, LeaseLost
from loragate.adapter_store.jobs.queue import JobClaim
from loragate.adapter_store.store import Store

log = logging.getLogger(__name__)

T = TypeVar("T")

_RENEWALS = 6  # per lease; each asks for the tenant's command


class WorkerLease:
    """A leased job. When the lease is `lost` or an `order` arrives, `interrupted` is set and work should end."""

    def __init__(self, store: Store, claim: JobClaim, worker: str) -> None:
        self.job: Job = claim.job
        self.tenant_id = claim.tenant_id
        self.worker = worker
        self.lost = False
        self.order = claim.order
        self.trainer_killed = False  # because it did not stop
        self.interrupted = asyncio.Event()
        self._store = store
        if self.order is not None:
            self.interrupted.set()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[JobLease]:
        """Open one transaction that records the job's progress."""
        async with self._store.tenant(self.tenant_id, write=True) as scope:
            yield scope.job_lease

    async def unless_interrupted(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Return or raise what `work` does. If the lease is interrupted first, cancel it and return None."""
        working, interrupted = asyncio.create_task(work), asyncio.create_task(self.interrupted.wait())
        try:
            await asyncio.wait((working, interrupted), return_when=asyncio.FIRST_COMPLETED)
            return working.result() if working.done() else None
        finally:
            for task in (working, interrupted):
                task.cancel()
            await asyncio.wait((working, interrupted))

    async def run_renewal_loop(self) -> None:
        """Renew the lease until it is lost. While the database is unavailable it may expire."""
        while not self.lost:
            await asyncio.sleep(LEASE.total_seconds() / _RENEWALS)
            await self.renew()

    async def renew(self) -> None:
        """Renew the lease once."""
        try:
            async with self.transaction() as work:
                self.order = await work.renew(self.job.id, self.worker)
        except (LeaseLost, NotFound):  # NotFound: the tenant was deleted
            self.lost = True
        except StoreError as error:
            log.warning("job %s: its lease could not be renewed: %s", self.job.id, error)
        if self.lost or self.order is not None:
            self.interrupted.set()


@asynccontextmanager
async def held_lease(store: Store, claim: JobClaim, worker: str) -> AsyncIterator[WorkerLease]:
    """Renew the lease of a claimed job while the block runs."""
    lease = WorkerLease(store, claim, worker)
    renewing = asyncio.create_task(lease.run_renewal_loop(), name=f"lease {claim.job.id}")
    try:
        yield lease
    finally:
        renewing.cancel()
        await asyncio.wait([renewing])  # unlike awaiting the task, this propagates our own cancellation
