"""Periodic writing of what was collected in memory."""

import asyncio
from collections.abc import Awaitable, Callable


async def run_write_loop(write: Callable[[], Awaitable[None]], interval: float) -> None:
    """Write every `interval` seconds until cancelled, and then once more."""
    try:
        while True:
            await asyncio.sleep(interval)
            await write()
    finally:
        await write()
