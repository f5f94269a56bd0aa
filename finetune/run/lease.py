"""A job that this worker holds, for as long as it says so in time."""

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from loragate.adapter_store.errors import NotFound, StoreError
from loragate.adapter_store.jobs.job import Job, Order
from loragate.adapter_store.jobs.lease import LEASE, JobWork, LeaseLost
from loragate.adapter_store.jobs.queue import Claim
from loragate.adapter_store.store import Store

log = logging.getLogger(__name__)

T = TypeVar("T")

_RENEWALS = 3  # within one lease


class WorkerLease:
    """`lost` or an `order` sets `interrupted`: whoever works on the job should come to an end."""

    def __init__(self, store: Store, claim: Claim, worker: str) -> None:
        self.job: Job = claim.job
        self.tenant_id = claim.tenant_id
        self.worker = worker
        self.lost = False
        self.order: Order | None = None
        self.interrupted = asyncio.Event()
        self._store = store

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[JobWork]:
        """One transaction, to say something about the job."""
        async with self._store.tenant(self.tenant_id, write=True) as scope:
            yield scope.job_work

    async def unless_interrupted(self, work: Coroutine[Any, Any, T]) -> T | None:
        """What `work` returns, or raises; None where it was given up, because the holding was interrupted first."""
        working, told = asyncio.create_task(work), asyncio.create_task(self.interrupted.wait())
        try:
            await asyncio.wait((working, told), return_when=asyncio.FIRST_COMPLETED)
            return working.result() if working.done() else None
        finally:
            for task in (working, told):
                task.cancel()
            await asyncio.wait((working, told))

    async def keep(self) -> None:
        """Renews until cancelled, or until it is lost. While the database is away the lease may run out."""
        while not self.lost:
            await asyncio.sleep(LEASE.total_seconds() / _RENEWALS)
            await self.renew()

    async def renew(self) -> None:
        """Once."""
        try:
            async with self.transaction() as work:
                self.order = await work.renew(self.job.id, self.worker)
        except (LeaseLost, NotFound):  # or the tenant is gone
            self.lost = True
        except StoreError as error:
            log.warning("job %s: its lease is not renewed: %s", self.job.id, error)
        if self.lost or self.order is not None:
            self.interrupted.set()


@asynccontextmanager
async def held_lease(store: Store, claim: Claim, worker: str) -> AsyncIterator[WorkerLease]:
    """Renewed beside the block."""
    held = WorkerLease(store, claim, worker)
    keeping = asyncio.create_task(held.keep(), name=f"holding {claim.job.id}")
    try:
        yield held
    finally:
        keeping.cancel()
        await asyncio.wait([keeping])  # whoever cancels us meanwhile is heard
