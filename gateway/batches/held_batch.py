"""A batch that this process holds: its lease, which is renewed, and access to its tenant's data."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from datetime import timedelta

from loragate.adapter_store.audit.actor import Actor
from loragate.adapter_store.batches.batch import BatchError, BatchStatus
from loragate.adapter_store.batches.queue import BatchClaim
from loragate.adapter_store.errors import StoreError
from loragate.adapter_store.files.file import Purpose
from loragate.adapter_store.jobs.lease import LeaseLost
from loragate.adapter_store.scopes import TenantScope
from loragate.gateway.resilience.timeouts import cancel_and_wait, wait_for_event
from loragate.gateway.services import Services

log = logging.getLogger(__name__)

_RENEW_SECONDS = 5.0  # of the lease's thirty
FILE_GONE = BatchError("file_not_found", "The input file was deleted or has expired.", param="input_file_id")


class HeldBatch:
    """`batch` is the batch as it was read last."""

    def __init__(self, use: Services, claim: BatchClaim) -> None:
        self.use = use
        self.tenant_id = claim.tenant_id
        self.batch = claim.batch
        self.lease = claim.batch.id, claim.worker
        self.lost = asyncio.Event()  # set when another process may hold it
        self.news = asyncio.Event()  # set when `batch` was read again, or its tokens are used up
        self._poked = asyncio.Event()

    def poke(self) -> None:
        """Read the batch again, and renew the lease, now."""
        self._poked.set()

    def scope(self, *, write: bool = False) -> AbstractAsyncContextManager[TenantScope]:
        """Open a transaction on the tenant's data, on behalf of the key that requested the batch."""
        return self.use.store.tenant(self.tenant_id, write=write, by=Actor(f"api_key:{self.batch.key_id}"))

    @asynccontextmanager
    async def renewing(self) -> AsyncIterator[None]:
        """Renew the lease during the block, from which LeaseLost is raised once it is lost."""
        task = asyncio.current_task()
        assert task is not None
        renewal = asyncio.create_task(self._renew(task), name="batch-lease")
        try:
            yield
        except asyncio.CancelledError:
            if self.lost.is_set() and task.uncancel() == 0:
                raise LeaseLost("Another process holds the batch.") from None
            raise
        finally:
            await cancel_and_wait(renewal)

    async def finalize(self, ending: BatchStatus, *errors: BatchError) -> None:
        """Run no more lines: what is left is to write the files."""
        async with self.scope(write=True) as scope:
            self.batch = await scope.batch_lease.finalize(*self.lease, ending, errors)

    async def wait(self, reason: str, seconds: float) -> None:
        """Give the batch up, for so many seconds; `reason` is a sentence."""
        async with self.scope(write=True) as scope:
            await scope.batch_lease.wait(*self.lease, reason, timedelta(seconds=seconds))

    async def release(self) -> None:
        """Give the batch up, so that another process may claim it at once. Without the database its lease expires."""
        with suppress(StoreError):
            async with self.scope(write=True) as scope:
                await scope.batch_lease.release(*self.lease)

    async def input(self) -> AsyncIterator[bytes]:
        """Return the bytes of the input file. Raise NotFound, and Unavailable while iterating."""
        async with self.scope() as scope:
            file = await scope.files.get(self.batch.input_file, (Purpose.BATCH,))
            pieces = await scope.files.pieces_of(file)
        return self.use.store.read_pieces(self.tenant_id, pieces)

    async def _renew(self, holder: "asyncio.Task[object]") -> None:
        while True:
            await wait_for_event(self._poked, _RENEW_SECONDS)
            self._poked.clear()
            try:
                async with self.scope(write=True) as scope:
                    self.batch = await scope.batch_lease.renew(*self.lease)
            except LeaseLost:
                self.lost.set()
                holder.cancel()
                return
            except StoreError as error:
                log.warning("the lease of %s was not renewed: %s", self.batch.id, error)
            self.news.set()
