"""What is noted in memory and written in batches."""

import asyncio
from collections.abc import Awaitable, Callable


async def write_for_ever(write: Callable[[], Awaitable[None]], interval: float) -> None:
    """Every `interval` seconds until cancelled, and then once more."""
    try:
        while True:
            await asyncio.sleep(interval)
            await write()
    finally:
        await write()
