"""The batches of this process: it claims what waits, runs it beside the requests, and writes the results to files."""

import asyncio
import logging
from functools import partial

from loragate.adapter_store.batches.batch import MAX_BATCH_LINES, BatchStatus
from loragate.adapter_store.errors import Conflict, NotFound, StorageFull, StoreError
from loragate.adapter_store.jobs.lease import LeaseLost
from loragate.gateway.batches.held_batch import FILE_GONE, HeldBatch
from loragate.gateway.batches.input_lines import portions
from loragate.gateway.batches.line import LineRunner
from loragate.gateway.batches.line_run import LineRun, OthersWait
from loragate.gateway.batches.places import LinePlaces
from loragate.gateway.batches.result_files import finish
from loragate.gateway.batches.validation import InputValidator
from loragate.gateway.generation.prepare import RequestPreparer
from loragate.gateway.generation.service import GenerationService
from loragate.gateway.http.access_log import log_exception
from loragate.gateway.metering.ledger import Prices
from loragate.gateway.resilience.claimed_work import ClaimedWork, claim_from
from loragate.gateway.services import Services

log = logging.getLogger(__name__)

MAX_HELD = 4  # batches of one process at a time
_NO_ROOM_SECONDS = 60.0
_BUG_SECONDS = 60.0
_BUG = "The server failed on the batch and tries again."


class BatchRunner:
    """Runs batches. One per process."""

    def __init__(self, preparer: RequestPreparer, generation: GenerationService, prices: Prices, places: int) -> None:
        self._preparer = preparer
        self._generation = generation
        self._prices = prices
        self._places = LinePlaces(places) if places else None
        self._claimed: ClaimedWork[HeldBatch] = ClaimedWork("batch", lambda: MAX_HELD)

    def wake(self) -> None:
        """Look for batches now, and at those that are held: one was created, or cancelled."""
        self._claimed.wake()

    async def run_loop(self, use: Services) -> None:
        """Claim and run batches until cancelled; then give them up to other processes."""
        if self._places is not None:
            await self._claimed.run_loop(lambda: use.lifecycle.draining, lambda: self._claim(use), self._work)

    async def _claim(self, use: Services) -> HeldBatch | None:
        claim = await claim_from(use.store, lambda admin: admin.batch_queue)
        return None if claim is None else HeldBatch(use, claim)

    async def _work(self, held: HeldBatch) -> None:
        assert self._places is not None
        try:
            async with held.renewing():
                await self._advance(held, self._places)
        except LeaseLost:
            log.info("batch %s is held by another process, or has ended", held.batch.id)
        except (Conflict, StorageFull) as error:
            await self._wait(held, error.message, _NO_ROOM_SECONDS)
        except StoreError as error:
            log.warning("batch %s is given up for now: %s", held.batch.id, error)
            await held.release()
        except asyncio.CancelledError:
            await asyncio.shield(held.release())
            raise
        except Exception as error:
            log_exception(log, error, held.batch.id)
            await self._wait(held, _BUG, _BUG_SECONDS)

    async def _wait(self, held: HeldBatch, reason: str, seconds: float) -> None:
        try:
            await held.wait(reason, seconds)
        except StoreError as error:
            log.warning("batch %s is given up for now: %s", held.batch.id, error)

    async def _advance(self, held: HeldBatch, places: LinePlaces) -> None:
        """Take the batch as far as it gets in one turn."""
        if held.batch.status is BatchStatus.VALIDATING and not await self._validate(held):
            return
        if held.batch.status is BatchStatus.IN_PROGRESS:
            lines = LineRunner(held.use, self._preparer, self._generation, self._prices)
            with places.batch() as own:
                if not await LineRun(held, lines, own, _others_wait(held.use)).run():
                    return
        if held.batch.status is BatchStatus.CANCELLING:
            await held.finalize(BatchStatus.CANCELLED)
        await finish(held)

    async def _validate(self, held: HeldBatch) -> bool:
        """Validate the input file; return whether the batch goes on."""
        batch, use = held.batch, held.use
        async with held.scope() as scope:
            limit = await scope.batch_lease.max_lines()
        validator = InputValidator(batch.endpoint, MAX_BATCH_LINES if limit is None else min(limit, MAX_BATCH_LINES))
        try:
            async for portion in portions(await held.input(), use.config.max_json_bytes):
                await use.file_threads.run(held.tenant_id, partial(validator.add, portion))
                if validator.done:
                    break
            validator.finish()
            errors = validator.errors
        except NotFound:
            errors = [FILE_GONE]
        async with held.scope(write=True) as scope:
            if errors:
                await scope.batch_lease.end(*held.lease, BatchStatus.FAILED, errors)
                return False
            held.batch = await scope.batch_lease.start(*held.lease, validator.total)
        return True


def _others_wait(use: Services) -> OthersWait:
    async def wait(tenant_id: str) -> bool:
        async with use.store.admin() as admin:
            return await admin.batch_queue.others_wait(tenant_id)

    return wait
