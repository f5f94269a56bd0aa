"""Waiting for others, but not too long."""

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")

_LATE_SECONDS = 0.01


async def within(seconds: float, work: Awaitable[T]) -> T:
    """What `work` returns. Raises TimeoutError, and has cancelled it, when that takes longer than `seconds`.

    Where this process's own event loop was held up, the answer may be there unread when the time is over: it is given
    one more moment, in which the loop reads.
    """
    future = asyncio.ensure_future(work)
    try:
        for patience in (seconds, _LATE_SECONDS):
            await asyncio.wait((future,), timeout=patience)
            if future.done():
                return future.result()
        raise TimeoutError
    finally:
        future.cancel()


async def ended(*tasks: asyncio.Task[None]) -> None:
    """They are cancelled, and returns when they have cleaned up."""
    for task in tasks:
        task.cancel()
    for task in tasks:
        with suppress(asyncio.CancelledError):
            await task


async def happens(event: asyncio.Event, seconds: float) -> bool:
    """Whether it is set now, or within so many seconds; returns as soon as that is known."""
    if not event.is_set():
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await event.wait()
    return event.is_set()
