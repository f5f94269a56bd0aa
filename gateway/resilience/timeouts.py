"""Waiting with a time limit."""

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")

_LATE_SECONDS = 0.01


async def within(seconds: float, work: Awaitable[T]) -> T:
    """Return what `work` returns. If that takes longer than `seconds`, cancel it and raise TimeoutError.

    If this process's own event loop was blocked, a response may have arrived in time but not been read: one more
    iteration of the loop is granted for that.
    """
    future = asyncio.ensure_future(work)
    try:
        for timeout in (seconds, _LATE_SECONDS):
            await asyncio.wait((future,), timeout=timeout)
            if future.done():
                return future.result()
        raise TimeoutError
    finally:
        future.cancel()


async def cancel_and_wait(*tasks: asyncio.Task[None]) -> None:
    """Cancel the tasks and return when all of them have cleaned up."""
    for task in tasks:
        task.cancel()
    for task in tasks:
        with suppress(asyncio.CancelledError):
            await task


async def wait_for_event(event: asyncio.Event, seconds: float) -> bool:
    """Wait until the event is set, for at most `seconds`; return whether it is set.

    An event that is set and cleared again, before this task runs, does not end the wait.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while not event.is_set():
                await event.wait()
    return event.is_set()
