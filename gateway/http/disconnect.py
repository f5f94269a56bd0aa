"""Cancellation of work when its client disconnects.

A handler that only awaits the engine does not notice that its client has disconnected; another task has to read
`receive()` meanwhile.
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
    """Return the result of `work`, whose request body must have been read.

    Raise ClientDisconnect if the client disconnects first, and ShuttingDown at the drain's deadline. In both cases
    `work` is cancelled, and its cleanup awaited, before that.
    """
    async with _Interruptible(lifecycle) as interruptible:
        watch = asyncio.create_task(_watch(receive, interruptible))
        try:
            return await work
        finally:
            watch.cancel()


async def until_deadline(work: Awaitable[T], lifecycle: Lifecycle) -> T:
    """Do the same for work that something else cancels when its client disconnects."""
    async with _Interruptible(lifecycle):
        return await work


async def _watch(receive: Receive, interruptible: "_Interruptible") -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    interruptible.interrupt(ClientDisconnect())


class _Interruptible:
    """A block that another task can end with an exception: its task is cancelled, as by `asyncio.timeout`."""

    def __init__(self, lifecycle: Lifecycle) -> None:
        self._lifecycle = lifecycle
        self._reason: Exception | None = None
        self._task: asyncio.Task[object]

    async def __aenter__(self) -> "_Interruptible":
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._cancelled_before = task.cancelling()
        self._lifecycle.add_deadline_callback(self._expire)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lifecycle.remove_deadline_callback(self._expire)
        if self._reason is None:
            return
        if kind is None:  # the block is already over; the cancellation is still to be delivered
            try:
                await asyncio.sleep(0)
            except asyncio.CancelledError:
                pass
        if self._task.uncancel() <= self._cancelled_before and kind is asyncio.CancelledError:
            raise self._reason from error

    def interrupt(self, reason: Exception) -> None:
        """End the block with `reason`, unless there already is one."""
        if self._reason is None:
            self._reason = reason
            self._task.cancel()

    def _expire(self) -> None:
        self.interrupt(ShuttingDown())
