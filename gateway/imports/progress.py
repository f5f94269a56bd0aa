"""The progress of one import, reported to the database once a second, and its outcome."""

import asyncio
import logging
from contextlib import suppress

from loragate.adapter_store.errors import Failure, StoreError
from loragate.adapter_store.imports.rows import Import
from loragate.adapter_store.store import Store

log = logging.getLogger(__name__)

_REPORT_SECONDS = 1.0


class ImportProgress:
    """The import updates `done` and `total`, in bytes; `run_report_loop` writes them to the database."""

    def __init__(self, store: Store, tenant_id: str, wanted: Import) -> None:
        self.wanted = wanted
        self.status = wanted.status
        self.done = 0
        self.total: int | None = None
        self._store = store
        self._tenant_id = tenant_id

    def set_total(self, total: int | None) -> None:
        """Set the number of bytes to fetch; None if it is unknown."""
        self.total = total

    async def report(self) -> bool:
        """Write the progress. Return False if the import was cancelled; True if the database is unavailable."""
        with suppress(StoreError):
            async with self._store.tenant(self._tenant_id, write=True) as scope:
                return await scope.import_lease.progress(self.wanted, self.status, self.done, self.total)
        return True

    async def run_report_loop(self, work: asyncio.Task[None]) -> None:
        """Report until cancelled; cancel `work` if the import was cancelled."""
        while await self.report():  # noqa: ASYNC110 (a report, not a wait)
            await asyncio.sleep(_REPORT_SECONDS)
        work.cancel()

    async def finish(self, version: int) -> None:
        """Record that the import has become `version`."""
        await self.report()
        with suppress(StoreError):
            async with self._store.tenant(self._tenant_id, write=True) as scope:
                await scope.import_lease.finish(self.wanted, version)

    async def fail(self, failure: Failure) -> None:
        """Record a failure. A cancelled import stays cancelled."""
        try:
            async with self._store.tenant(self._tenant_id, write=True) as scope:
                await scope.import_lease.fail(self.wanted, failure)
        except StoreError as error:
            log.warning("an import's failure could not be recorded: %s", error)

    async def release(self) -> None:
        """Release the import, so that another process can start it from the beginning."""
        with suppress(StoreError):  # the lease expires within a minute
            async with self._store.tenant(self._tenant_id, write=True) as scope:
                await scope.import_lease.release(self.wanted)
