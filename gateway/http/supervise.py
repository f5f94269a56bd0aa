"""Work that ends when its client leaves.

A handler that only awaits the engine is never told that its client hung up; somebody has to read `receive()`
beside the work.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect
from starlette.types import Receive

from loragate.gateway.http.errors import ShuttingDown
from loragate.gateway.http.lifecycle import Lifecycle

T = TypeVar("T")


async def supervise(work: Coroutine[Any, Any, T], receive: Receive, lifecycle: Lifecycle) -> T:
    """The result of `work`, whose request body must have been read.

    Raises ClientDisconnect when the client leaves first, and ShuttingDown at the drain's deadline. In both cases
    `work` has been cancelled, and its cleaning up awaited, before this returns.
    """
    return await _until(work, lifecycle, _disconnected(receive))


async def until_deadline(work: Coroutine[Any, Any, T], lifecycle: Lifecycle) -> T:
    """The same for work that is cancelled by itself when its client leaves."""
    return await _until(work, lifecycle)


async def _until(work: Coroutine[Any, Any, T], lifecycle: Lifecycle, *leaving: Coroutine[Any, Any, None]) -> T:
    task = asyncio.create_task(work)
    deadline = asyncio.create_task(lifecycle.deadline.wait())
    tasks = (task, deadline, *map(asyncio.create_task, leaving))
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ShuttingDown if deadline.done() else ClientDisconnect
    finally:
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
