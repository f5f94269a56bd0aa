"""Sampling of the event loop's lag: anything that blocks the loop delays every request of the process."""

import asyncio
from collections.abc import Callable

SAMPLE_SECONDS = 0.5


async def run_lag_sampling(record: Callable[[float], None]) -> None:
    """Call `record` with the lag in seconds, again and again until cancelled."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + SAMPLE_SECONDS
        await asyncio.sleep(SAMPLE_SECONDS)
        record(max(0.0, loop.time() - due))
