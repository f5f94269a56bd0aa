"""The background responses of this process: it claims what waits and runs it."""

import asyncio
import logging

from loragate.adapter_store.errors import StoreError
from loragate.adapter_store.jobs.lease import LeaseLost
from loragate.adapter_store.responses.response import MAX_ATTEMPTS
from loragate.gateway.errors import InternalError
from loragate.gateway.http.access_log import log_exception
from loragate.gateway.metering.ledger import Prices
from loragate.gateway.resilience.claimed_work import ClaimedWork, claim_from
from loragate.gateway.responses.held_response import HeldResponse
from loragate.gateway.services import Services

log = logging.getLogger(__name__)


class ResponseRunner:
    """Runs responses. One per process."""

    def __init__(self, prices: Prices, most: int) -> None:
        self._prices = prices
        self._most = most
        self._claimed: ClaimedWork[HeldResponse] = ClaimedWork("background response", lambda: most)

    def wake(self) -> None:
        """Look for responses now, and at those that are held: one was created, cancelled or deleted."""
        self._claimed.wake()

    async def run_loop(self, use: Services) -> None:
        """Claim and run responses until cancelled; then give them up to other processes."""
        if self._most:
            await self._claimed.run_loop(lambda: use.lifecycle.draining, lambda: self._claim(use), self._work)

    async def _claim(self, use: Services) -> HeldResponse | None:
        claim = await claim_from(use.store, lambda admin: admin.response_queue)
        return None if claim is None else HeldResponse(use, claim, self._prices)

    async def _work(self, held: HeldResponse) -> None:
        try:
            if held.claim.attempts > MAX_ATTEMPTS:
                await held.fail(InternalError(held.claim.id))
            else:
                await held.run()
        except LeaseLost:
            log.info("response %s is held by another process, or was deleted", held.claim.id)
            await self._record_lost(held)
        except StoreError as error:
            log.warning("response %s is given up for now: %s", held.claim.id, error)
            await held.release()
        except asyncio.CancelledError:
            await asyncio.shield(held.release())
            raise
        except Exception as error:
            log_exception(log, error, held.claim.id)
            await self._fail(held)

    async def _record_lost(self, held: HeldResponse) -> None:
        try:
            await held.record_lost()
        except StoreError as error:
            log.warning("the usage of %s was not recorded: %s", held.claim.id, error)

    async def _fail(self, held: HeldResponse) -> None:
        try:
            await held.fail(InternalError(held.claim.id))
        except StoreError as error:
            log.warning("the failure of %s was not recorded: %s", held.claim.id, error)
