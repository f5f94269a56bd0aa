"""The imports that this process works on: a few at a time, beside all requests, through the same door as uploads."""

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
from loragate.gateway.imports.allow_list import Places
from loragate.gateway.imports.buckets import bucket_files
from loragate.gateway.imports.fetcher import Fetcher
from loragate.gateway.imports.hub import hub_files
from loragate.gateway.imports.metrics import ImportMetrics
from loragate.gateway.imports.progress import Job
from loragate.gateway.imports.source import BucketSource, HubSource, ImportFailed, not_allowed, parse_source
from loragate.gateway.operations.adapters import publish_import
from loragate.gateway.resilience.timeouts import cancel_and_wait
from loragate.gateway.services import Services
from loragate.gateway.uploads.adapter_upload import ADAPTER_FORM, collect_adapter_upload
from loragate.gateway.uploads.multipart import Form

log = logging.getLogger(__name__)

_BUG = Failure("internal_error", "The server failed on this import. Quote its id when asking why.")


class ImportRunner:
    """`start` returns at once; `close` ends what still runs, and leaves it to others."""

    def __init__(self, config: ImportConfig, metrics: ImportMetrics) -> None:
        self._config = config
        self._metrics = metrics
        self._places = Places((*config.hosts, *([config.hub] if config.hub else [])))
        self._turns = asyncio.Semaphore(config.max_concurrent)
        self._tasks: set[asyncio.Task[None]] = set()

    def check(self, source: str, tenant_id: str) -> None:
        """Raises InvalidRequest for what is no source, or one that the operator does not let this tenant import."""
        found = parse_source(source)
        if isinstance(found, HubSource) and self._config.hub is None:
            raise not_allowed("This server imports nothing from a hub.")
        if isinstance(found, BucketSource) and not self._config.grants(found.place, tenant_id):
            raise not_allowed("This server imports nothing from that bucket.")

    def start(self, use: Services, caller: TenantPrincipal, by: Actor, wanted: Import, token: str | None) -> None:
        """`token` is the tenant's own, for its hub; it is kept for as long as the fetching takes, and nowhere else."""
        task = asyncio.create_task(self._work(use, caller, by, wanted, token), name="import")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    @property
    def has_time(self) -> bool:
        """One more would be worked on at once."""
        return len(self._tasks) < self._config.max_concurrent

    @property
    def running(self) -> int:
        """How many wait or are worked on here."""
        return len(self._tasks)

    async def close(self) -> None:
        """Returns when all have ended."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _work(self, use: Services, caller: TenantPrincipal, by: Actor, wanted: Import, token: str | None) -> None:
        job = Job(use.store, caller.tenant_id, wanted)
        work = asyncio.current_task()
        assert work is not None
        telling = asyncio.create_task(job.keep_telling(work), name="import-progress")
        failure: Failure | None = None
        outcome = "failed"
        self._metrics.began()
        try:
            async with self._turns:
                version = await self._import(use, caller, by, job, token, telling)
            await cancel_and_wait(telling)  # which would take the end for a cancellation
            await job.finish(version)
            outcome = "ready"
        except asyncio.CancelledError:
            await job.let_go()
            outcome = "stopped"
        except ImportFailed as failed:
            failure = failed.failure
        except (ApiError, StoreError) as error:
            failure = Failure(error.code or "invalid_value", error.message, error.param)
        except Exception:
            log.exception("import %s failed", wanted.id)
            failure = _BUG
        finally:
            await cancel_and_wait(telling)
        self._metrics.ended(outcome)
        if failure is not None:
            await job.fail(failure)

    async def _import(
        self,
        use: Services,
        caller: TenantPrincipal,
        by: Actor,
        job: Job,
        token: str | None,
        telling: asyncio.Task[None],
    ) -> int:
        """The number of the version that it has become."""
        self.check(job.wanted.source, caller.tenant_id)  # long ago it may have been another server's to allow
        job.status = ImportStatus.FETCHING
        form = Form(ADAPTER_FORM)
        form.add("name", job.wanted.name.encode())
        form.add("alias", job.wanted.alias.encode())
        async with AsyncExitStack() as stack:
            files = await self._files(use, caller, job, token, stack)
            upload = await stack.enter_async_context(
                collect_adapter_upload(form, self._filling(form, files, job), use.config)
            )
            job.status = ImportStatus.CHECKING  # from here on it cannot be cancelled
            if not await job.tell():
                raise asyncio.CancelledError
            told = replace(upload, lineage=Lineage("import", notes=job.wanted.source))
            return await publish_import(use, caller, by, told, job.wanted)

    async def _files(
        self, use: Services, caller: TenantPrincipal, job: Job, token: str | None, stack: AsyncExitStack
    ) -> AsyncIterator[tuple[str, bytes]]:
        source, limit = parse_source(job.wanted.source), use.config.max_upload_bytes
        if isinstance(source, BucketSource):
            return bucket_files(source, limit, job.announce)
        assert self._config.hub is not None, "it was checked before the import began"
        fetcher = Fetcher(self._places, self._config.hub, token, use.config.upload_pace)
        await stack.enter_async_context(fetcher)
        return hub_files(fetcher, self._config.hub, source, limit, job.announce)

    async def _filling(self, form: Form, files: AsyncIterator[tuple[str, bytes]], job: Job) -> AsyncIterator[None]:
        async for file, piece in files:
            form.add(file, piece)
            job.done += len(piece)
            self._metrics.fetched(len(piece))
            yield
