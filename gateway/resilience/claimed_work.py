"""What one process claims of a queue that several processes share, and works on, a few at a time."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Generic, Protocol, TypeVar

from loragate.adapter_store.errors import StoreError
from loragate.adapter_store.ids import new_id
from loragate.adapter_store.scopes import AdminScope
from loragate.adapter_store.store import Store
from loragate.gateway.resilience.timeouts import wait_for_event

log = logging.getLogger(__name__)

_POLL_SECONDS = 1.0

Claim = TypeVar("Claim", covariant=True)


class Held(Protocol):
    """Something that was claimed."""

    def poke(self) -> None:
        """Look at it now: it may have been cancelled or deleted."""
        ...


class Queue(Protocol[Claim]):
    """A queue in the store."""

    async def waits(self) -> bool:
        """Return whether something waits for a worker."""
        ...

    async def claim(self, worker: str) -> Claim | None:
        """Claim something for this worker; return None if nothing waits."""
        ...


H = TypeVar("H", bound=Held)


async def claim_from(store: Store, queue: Callable[[AdminScope], Queue[Claim]]) -> Claim | None:
    """Claim something for a new worker, after a look that takes no lock; return None if nothing waits. Raise
    StoreError."""
    async with store.admin() as admin:
        if not await queue(admin).waits():
            return None
    async with store.admin(write=True) as admin:
        return await queue(admin).claim(new_id("worker"))


class ClaimedWork(Generic[H]):
    """At most `most()` things at a time; `what` names them in the log and their tasks."""

    def __init__(self, what: str, most: Callable[[], int]) -> None:
        self._what = what
        self._most = most
        self._news = asyncio.Event()
        self._held: dict[asyncio.Task[None], H] = {}

    def wake(self) -> None:
        """Look for work now, and at what is held: something was created, cancelled or deleted."""
        self._news.set()
        for held in self._held.values():
            held.poke()

    async def run_loop(
        self,
        is_draining: Callable[[], bool],
        claim: Callable[[], Awaitable[H | None]],
        work: Callable[[H], Coroutine[Any, Any, None]],
    ) -> None:
        """Claim, except while draining, and work until cancelled; then cancel the work, which gives all up."""
        try:
            while True:
                try:
                    await self._claim(is_draining, claim, work)
                except StoreError as error:
                    log.warning("no %s was claimed: %s", self._what, error)
                await wait_for_event(self._news, _POLL_SECONDS)
                self._news.clear()
        finally:
            for task in self._held:
                task.cancel()
            await asyncio.gather(*self._held, return_exceptions=True)

    async def _claim(
        self,
        is_draining: Callable[[], bool],
        claim: Callable[[], Awaitable[H | None]],
        work: Callable[[H], Coroutine[Any, Any, None]],
    ) -> None:
        while len(self._held) < self._most() and not is_draining():
            held = await claim()
            if held is None:
                return
            task = asyncio.create_task(work(held), name=self._what)
            self._held[task] = held
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._held[task]
        self._news.set()
