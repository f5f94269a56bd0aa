"""How late the event loop is, sampled: whatever blocks it delays every request of the process."""

import asyncio
from collections.abc import Callable

SAMPLE_SECONDS = 0.5


async def watch_lag(lagged: Callable[[float], None]) -> None:
    """Runs until it is cancelled."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + SAMPLE_SECONDS
        await asyncio.sleep(SAMPLE_SECONDS)
        lagged(max(0.0, loop.time() - due))
