"""The imports of this process: a few run at a time beside the requests, and are published like uploads."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace

from loragate.adapter_store.adapters.lineage import Lineage
from loragate.adapter_store.audit.actor import Actor
from loragate.adapter_store.auth.principal import TenantPrincipal
from loragate.adapter_store.errors import Failure, StoreError
from loragate.adapter_store.imports.rows import Import, ImportStatus
from loragate.gateway.config.imports import ImportConfig
from loragate.gateway.errors import ApiError
from loragate.gateway.imports.allow_list import AllowList
from loragate.gateway.imports.buckets import bucket_files
from loragate.gateway.imports.fetcher import Fetcher
from loragate.gateway.imports.hub import hub_files
from loragate.gateway.imports.metrics import ImportMetrics
from loragate.gateway.imports.progress import ImportProgress
from loragate.gateway.imports.source import (
    BucketSource,
    HubSource,
    ImportFailed,
    files_to_fetch,
    parse_source,
    source_not_allowed,
)
from loragate.gateway.imports.turns import Turns
from loragate.gateway.operations.adapters import publish_import
from loragate.gateway.resilience.timeouts import cancel_and_wait
from loragate.gateway.services import Services
from loragate.gateway.uploads.adapter_upload import ADAPTER_FORM, collect_adapter_upload
from loragate.gateway.uploads.multipart import Form

log = logging.getLogger(__name__)

_BUG = Failure("internal_error", "The server failed on this import. Quote its id when asking why.")


class ImportRunner:
    """Runs imports. `start` returns at once; `close` stops running imports, which other processes then resume."""

    def __init__(self, config: ImportConfig, metrics: ImportMetrics) -> None:
        self._config = config
        self._metrics = metrics
        self._allow_list = AllowList((*config.hosts, *([config.hub] if config.hub else [])))
        self._turns = Turns(config.max_concurrent)
        self._tasks: set[asyncio.Task[None]] = set()

    def check(self, source: str, tenant_id: str) -> None:
        """Raise InvalidRequest for an invalid source, or one that the operator does not allow this tenant."""
        found = parse_source(source)
        if isinstance(found, HubSource) and self._config.hub is None:
            raise source_not_allowed("This server does not import from a hub.")
        if isinstance(found, BucketSource) and not self._config.grants(found.place, tenant_id):
            raise source_not_allowed("This server does not import from that bucket.")

    def start(self, use: Services, caller: TenantPrincipal, by: Actor, wanted: Import, token: str | None) -> None:
        """Start an import. `token` is the tenant's own for the hub; it is only held in memory during the import."""
        task = asyncio.create_task(self._work(use, caller, by, wanted, token), name="import")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    @property
    def has_capacity(self) -> bool:
        """Whether another import would start at once."""
        return len(self._tasks) < self._config.max_concurrent

    @property
    def running(self) -> int:
        """The number of imports that wait or run here."""
        return len(self._tasks)

    async def close(self) -> None:
        """Cancel all imports and wait until they have ended."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _work(self, use: Services, caller: TenantPrincipal, by: Actor, wanted: Import, token: str | None) -> None:
        progress = ImportProgress(use.store, caller.tenant_id, wanted)
        work = asyncio.current_task()
        assert work is not None
        reporting = asyncio.create_task(progress.run_report_loop(work), name="import-progress")
        failure: Failure | None = None
        outcome = "failed"
        self._metrics.began()
        try:
            async with self._turns.place(caller.tenant_id):
                version = await self._import(use, caller, by, progress, token, reporting)
            await cancel_and_wait(reporting)  # which would mistake the end for a cancellation
            await progress.finish(version)
            outcome = "ready"
        except asyncio.CancelledError:
            await progress.release()
            outcome = "stopped"
        except ImportFailed as failed:
            failure = failed.failure
        except (ApiError, StoreError) as error:
            failure = Failure(error.code or "invalid_value", error.message, error.param)
        except Exception:
            log.exception("import %s failed", wanted.id)
            failure = _BUG
        finally:
            await cancel_and_wait(reporting)
        self._metrics.ended(outcome)
        if failure is not None:
            await progress.fail(failure)

    async def _import(
        self,
        use: Services,
        caller: TenantPrincipal,
        by: Actor,
        progress: ImportProgress,
        token: str | None,
        reporting: asyncio.Task[None],
    ) -> int:
        """Return the number of the version that the import has become."""
        self.check(progress.wanted.source, caller.tenant_id)  # again, because another server may have accepted it
        progress.status = ImportStatus.FETCHING
        form = Form(ADAPTER_FORM)
        form.add("name", progress.wanted.name.encode())
        form.add("alias", progress.wanted.alias.encode())
        async with AsyncExitStack() as stack:
            files = await self._files(use, caller, progress, token, stack)
            async with use.store.tenant(caller.tenant_id) as scope:
                room = await scope.files.room()
            space = stack.enter_context(use.spool_space.open(caller.tenant_id, room))
            upload = await stack.enter_async_context(
                collect_adapter_upload(form, self._fill(form, files, progress), space)
            )
            progress.status = ImportStatus.CHECKING  # from now on it cannot be cancelled
            if not await progress.report():
                raise asyncio.CancelledError
            upload = replace(upload, lineage=Lineage("import", notes=progress.wanted.source))
            return await publish_import(use, caller, by, upload, progress.wanted)

    async def _files(
        self, use: Services, caller: TenantPrincipal, progress: ImportProgress, token: str | None, stack: AsyncExitStack
    ) -> AsyncIterator[tuple[str, bytes]]:
        source = parse_source(progress.wanted.source)
        wanted = files_to_fetch(use.config.max_upload_bytes, signed=bool(use.config.signatures.signers))
        if isinstance(source, BucketSource):
            return bucket_files(source, wanted, progress.set_total)
        assert self._config.hub is not None, "it was checked before the import began"
        fetcher = Fetcher(self._allow_list, self._config.hub, token=token, pace=use.config.upload_pace)
        await stack.enter_async_context(fetcher)
        return hub_files(fetcher, self._config.hub, source, wanted, progress.set_total)

    async def _fill(
        self, form: Form, files: AsyncIterator[tuple[str, bytes]], progress: ImportProgress
    ) -> AsyncIterator[None]:
        async for file, piece in files:
            form.add(file, piece)
            progress.done += len(piece)
            self._metrics.fetched(len(piece))
            yield
