"""Work that ends when its client leaves.

A handler that only awaits the engine is never told that its client hung up; somebody has to read `receive()`
beside the work.
"""

import asyncio
from collections.abc import Awaitable
from types import TracebackType
from typing import TypeVar

from starlette.requests import ClientDisconnect
from starlette.types import Receive

from loragate.gateway.errors import ShuttingDown
from loragate.gateway.http.lifecycle import Lifecycle

T = TypeVar("T")


async def supervise(work: Awaitable[T], receive: Receive, lifecycle: Lifecycle) -> T:
    """The result of `work`, whose request body must have been read.

    Raises ClientDisconnect when the client leaves first, and ShuttingDown at the drain's deadline. In both cases
    `work` has been cancelled, and its cleaning up awaited, before this returns.
    """
    async with _Interruptible(lifecycle) as interruptible:
        watch = asyncio.create_task(_watch(receive, interruptible))
        try:
            return await work
        finally:
            watch.cancel()


async def until_deadline(work: Awaitable[T], lifecycle: Lifecycle) -> T:
    """The same for work that is cancelled by itself when its client leaves."""
    async with _Interruptible(lifecycle):
        return await work


async def _watch(receive: Receive, interruptible: "_Interruptible") -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    interruptible.interrupt(ClientDisconnect())


class _Interruptible:
    """A block that somebody else may end with an exception: its task is cancelled, as by `asyncio.timeout`."""

    def __init__(self, lifecycle: Lifecycle) -> None:
        self._lifecycle = lifecycle
        self._reason: Exception | None = None
        self._task: asyncio.Task[object]

    async def __aenter__(self) -> "_Interruptible":
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._cancelled_before = task.cancelling()
        self._lifecycle.at_deadline(self._expire)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lifecycle.not_at_deadline(self._expire)
        if self._reason is None:
            return
        if kind is None:  # it was over already; the cancellation is still on its way to us
            try:
                await asyncio.sleep(0)
            except asyncio.CancelledError:
                pass
        if self._task.uncancel() <= self._cancelled_before and kind is asyncio.CancelledError:
            raise self._reason from error

    def interrupt(self, reason: Exception) -> None:
        """The first reason counts."""
        if self._reason is None:
            self._reason = reason
            self._task.cancel()

    def _expire(self) -> None:
        self.interrupt(ShuttingDown())
