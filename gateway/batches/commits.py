"""Commits of results: those that come within a moment together, each once, with their usage."""

import asyncio
import logging

from loragate.adapter_store.batches.batch import LineResult
from loragate.adapter_store.errors import Conflict, NotFound, StoreError
from loragate.gateway.batches.held_batch import HeldBatch

log = logging.getLogger(__name__)

_GATHER_SECONDS = 0.1
_RETRY_SECONDS = 1.0
_MOST = 200  # results of one transaction
_MOST_CHARACTERS = 4 << 20
_MAX_WAITING_CHARACTERS = 16 << 20


class Commits:
    """The results of one batch on their way to the database. `tokens_left` are the tenant's for today, None: any."""

    def __init__(self, held: HeldBatch) -> None:
        self.tokens_left: int | None = None
        self._held = held
        self._used = 0  # tokens of the results that wait
        self._waiting: list[LineResult] = []
        self._size = 0
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._committing = asyncio.Lock()

    def put(self, result: LineResult) -> None:
        """Take a result. Return at once."""
        self._waiting.append(result)
        self._size += len(result.result)
        self._used += _tokens(result)
        self._news.set()
        if self.used_up:
            self._held.news.set()

    @property
    def used_up(self) -> bool:
        """Whether the tenant's tokens for today are used up."""
        return self.tokens_left is not None and self._used >= self.tokens_left

    async def room(self) -> None:
        """Wait until the results that wait are few enough for another line."""
        while self._size > _MAX_WAITING_CHARACTERS:
            self._room.clear()
            await self._room.wait()

    async def run(self) -> None:
        """Commit until cancelled. Raise LeaseLost, NotFound."""
        while True:
            await self._news.wait()
            await asyncio.sleep(_GATHER_SECONDS)
            self._news.clear()
            await self.flush()

    async def flush(self) -> None:
        """Commit all results, however long the database is unavailable. Raise LeaseLost, NotFound."""
        async with self._committing:
            while self._waiting:
                some = self._next()
                try:
                    await asyncio.shield(self._commit(some))
                except (Conflict, NotFound):
                    raise
                except StoreError as error:
                    log.warning("results of %s were not committed: %s", self._held.batch.id, error)
                    await asyncio.sleep(_RETRY_SECONDS)
                else:
                    del self._waiting[: len(some)]
                    self._size -= sum(len(each.result) for each in some)
                    self._used -= sum(map(_tokens, some))
                    self._room.set()

    async def _commit(self, results: list[LineResult]) -> None:
        held = self._held
        async with held.scope(write=True) as scope:
            await scope.batch_lease.add(*held.lease, results)
            self.tokens_left = await scope.batch_lease.tokens_left()
        for result in results:
            if result.usage is not None:
                held.use.usage_metrics.ended(result.usage)

    def _next(self) -> list[LineResult]:
        """Return the first of the results that wait, as many as one transaction takes."""
        size = 0
        some: list[LineResult] = []
        for result in self._waiting[:_MOST]:
            size += len(result.result)
            if some and size > _MOST_CHARACTERS:
                break
            some.append(result)
        return some


def _tokens(result: LineResult) -> int:
    """Return the tokens that count for limits, as in the ledger."""
    return 0 if result.usage is None else sum(result.usage.computed) + result.usage.cached_tokens
