"""One import's way into the database: how far it is, told once a second to whoever asks, and how it ended."""

import asyncio
import logging
from contextlib import suppress

from loragate.adapter_store.errors import Failure, StoreError
from loragate.adapter_store.imports.rows import Import
from loragate.adapter_store.store import Store

log = logging.getLogger(__name__)

_TELL_SECONDS = 1.0


class Job:
    """The fetching changes `done` and `total`; `keep_telling` writes them down."""

    def __init__(self, store: Store, tenant_id: str, wanted: Import) -> None:
        self.wanted = wanted
        self.status = wanted.status
        self.done = 0
        self.total: int | None = None
        self._store = store
        self._tenant_id = tenant_id

    def announce(self, total: int | None) -> None:
        """So many bytes there are to be."""
        self.total = total

    async def tell(self) -> bool:
        """Whether it is still wanted, as far as anybody can say at the moment."""
        with suppress(StoreError):
            async with self._store.tenant(self._tenant_id, write=True) as scope:
                return await scope.import_work.progress(self.wanted, self.status, self.done, self.total)
        return True

    async def keep_telling(self, work: asyncio.Task[None]) -> None:
        """Until it is cancelled itself; cancels `work` once nobody wants it any more."""
        while await self.tell():  # noqa: ASYNC110 (a report, not a wait)
            await asyncio.sleep(_TELL_SECONDS)
        work.cancel()

    async def finish(self, version: int) -> None:
        """The last word, when all went well."""
        await self.tell()
        with suppress(StoreError):
            async with self._store.tenant(self._tenant_id, write=True) as scope:
                await scope.import_work.finish(self.wanted, version)

    async def fail(self, failure: Failure) -> None:
        """The last word, when not. What was cancelled stays cancelled."""
        try:
            async with self._store.tenant(self._tenant_id, write=True) as scope:
                await scope.import_work.fail(self.wanted, failure)
        except StoreError as error:
            log.warning("an import's failure could not be written down: %s", error)

    async def let_go(self) -> None:
        """Nobody works on it here any more; whoever takes it begins anew."""
        with suppress(StoreError):  # it is taken a minute later
            async with self._store.tenant(self._tenant_id, write=True) as scope:
                await scope.import_work.let_go(self.wanted)
