"""The run of a batch's lines: those that have no result yet, many at a time."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from enum import Enum, auto

from loragate.adapter_store.auth.principal import Scope, TenantPrincipal
from loragate.adapter_store.batches.batch import BatchError, BatchStatus
from loragate.adapter_store.errors import NotFound, Unavailable
from loragate.gateway.batches.commits import Commits
from loragate.gateway.batches.held_batch import FILE_GONE, HeldBatch
from loragate.gateway.batches.input_lines import InputLine, portions
from loragate.gateway.batches.line import LineRunner
from loragate.gateway.batches.places import BatchPlaces
from loragate.gateway.resilience.timeouts import wait_for_event

_TURN_SECONDS = 30.0  # after which a batch of another tenant that waits goes first
_WIND_UP_SECONDS = 20.0  # for lines that are running when the turn is over
_CHECK_SECONDS = 1.0
_KEY_GONE = BatchError(
    "key_revoked", "The key that created the batch was revoked or has expired, and so was each that it was rotated to."
)


class _Stop(Enum):
    """Why lines are left that are not run now."""

    CANCELLED = auto()
    EXPIRED = auto()
    KEY_GONE = auto()
    FILE_GONE = auto()
    TURN_OVER = auto()
    TOKENS_USED = auto()


_NO_TOKENS = "The tenant's limit batch_tokens_per_day is used up. The batch goes on tomorrow (UTC)."
_ENDINGS: Mapping[_Stop | None, tuple[BatchStatus, *tuple[BatchError, ...]]] = {
    None: (BatchStatus.COMPLETED,),
    _Stop.CANCELLED: (BatchStatus.CANCELLED,),
    _Stop.EXPIRED: (BatchStatus.EXPIRED,),
    _Stop.KEY_GONE: (BatchStatus.FAILED, _KEY_GONE),
    _Stop.FILE_GONE: (BatchStatus.FAILED, FILE_GONE),
}
OthersWait = Callable[[str], Awaitable[bool]]
"""Returns whether a batch waits that is not this tenant's."""


class LineRun:
    """One turn of a batch in this process."""

    def __init__(self, held: HeldBatch, lines: LineRunner, places: BatchPlaces, others_wait: OthersWait) -> None:
        self._held = held
        self._lines = lines
        self._places = places
        self._others_wait = others_wait
        self._commits = Commits(held)
        self._tasks: set[asyncio.Task[None]] = set()
        self._caller: TenantPrincipal | None = None
        self._full = asyncio.Event()  # no further line is to be begun

    async def run(self) -> bool:
        """Run lines until all have results, or this turn ends; return whether the batch is still held, to be finished.
        Raise StoreError."""
        self._caller = await self._principal()
        async with self._held.scope() as scope:
            self._commits.tokens_left = await scope.batch_lease.tokens_left()
        stop = await self._run()
        await self._commits.flush()
        return await self._after(stop)

    async def _run(self) -> _Stop | None:
        """Run lines until all have results, or there is a reason to stop."""
        running = asyncio.create_task(self._run_all(), name="batch-lines")
        watching = asyncio.create_task(self._watch(), name="batch-watch")
        committing = asyncio.create_task(self._commits.run(), name="batch-commits")
        try:
            await asyncio.wait({running, watching, committing}, return_when=asyncio.FIRST_COMPLETED)
            if committing.done():
                committing.result()
            if running.done():
                return running.result()
            stop = watching.result()
            if stop in (_Stop.TURN_OVER, _Stop.TOKENS_USED):
                self._full.set()
                await asyncio.wait({running, committing}, timeout=_WIND_UP_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            return stop
        finally:
            for task in (running, watching, committing, *self._tasks):
                task.cancel()
            await asyncio.gather(running, watching, committing, *self._tasks, return_exceptions=True)

    async def _run_all(self) -> _Stop | None:
        """Begin all lines that have no result, as places become free, and wait for them."""
        held = self._held
        try:
            chunks = await held.input()
        except NotFound:
            return _Stop.FILE_GONE
        resumed = held.batch.completed + held.batch.failed > 0
        async for portion in portions(chunks, held.use.config.max_json_bytes):
            if resumed:
                async with held.scope() as scope:
                    known = await scope.batch_lease.finished(held.batch.id, (line.number for line in portion))
                portion = [line for line in portion if line.number not in known]
            for line in portion:
                if not await self._begin(line):
                    await self._all_ended()
                    return _Stop.TOKENS_USED if self._commits.used_up else _Stop.TURN_OVER
        await self._all_ended()
        return None

    async def _begin(self, line: InputLine) -> bool:
        """Begin a line when there is a place for it; return False if no further line is to be begun."""
        size = len(line.content)
        await self._commits.room()
        await self._places.take(size)
        if self._full.is_set() or self._commits.used_up:
            self._places.give_back(size)
            return False
        task = asyncio.create_task(self._run_line(line), name="batch-line")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: self._places.give_back(size))
        return True

    async def _run_line(self, line: InputLine) -> None:
        assert self._caller is not None
        self._commits.put(await self._lines.run(self._caller, self._held.batch, line))

    async def _all_ended(self) -> None:
        while self._tasks:
            await asyncio.gather(*self._tasks)

    async def _watch(self) -> _Stop:
        """Return when lines are to be left for later, or for good."""
        turn_ends = asyncio.get_running_loop().time() + _TURN_SECONDS
        while True:
            if (stop := self._stopped()) is not None:
                return stop
            if asyncio.get_running_loop().time() > turn_ends and await self._others_wait(self._held.tenant_id):
                return _Stop.TURN_OVER
            if await wait_for_event(self._held.news, _CHECK_SECONDS):
                self._held.news.clear()
                with suppress(Unavailable):  # lines go on while the database is down, as far as they can
                    self._caller = await self._principal()

    async def _after(self, stop: _Stop | None) -> bool:
        """Do what follows from the end of the turn; return whether the batch is still held, to be finished."""
        held = self._held
        if stop is _Stop.TURN_OVER:
            await held.release()
            return False
        if stop is _Stop.TOKENS_USED:
            await held.wait(_NO_TOKENS, _seconds_of_today())
            return False
        ending, *errors = _ENDINGS[stop]
        await held.finalize(ending, *errors)
        return True

    def _stopped(self) -> _Stop | None:
        batch = self._held.batch
        if batch.status is BatchStatus.CANCELLING:
            return _Stop.CANCELLED
        if batch.expires_at <= datetime.now(UTC):
            return _Stop.EXPIRED
        if self._caller is None:
            return _Stop.KEY_GONE
        return _Stop.TOKENS_USED if self._commits.used_up else None

    async def _principal(self) -> TenantPrincipal | None:
        """Return whose requests the lines are, as long as the key is valid."""
        found = await self._held.use.store.principal_of(self._held.batch.key_id)
        return found if found is not None and found.allows(Scope.INFERENCE) else None


def _seconds_of_today() -> float:
    """Return the time until the next day in UTC."""
    now = datetime.now(UTC)
    return (now.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1) - now).total_seconds()
