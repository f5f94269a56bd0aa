"""How busy the engine is: the part of its time in which it computes."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable

from loragate.engine.client.client import EngineClient, EngineUnavailable

LOOK_SECONDS = 1.0
_LITTLE = 0.01  # its own trials, and its heartbeat's shadow


async def loads(
    client: EngineClient, every: float = LOOK_SECONDS, clock: Callable[[], float] = time.monotonic
) -> AsyncIterator[float]:
    """0 to 1, of the time since the last look; 0 for next to nothing, and while there is no engine."""
    before = clock(), await _computed(client)
    while True:
        await asyncio.sleep(every)
        now = clock(), await _computed(client)
        load = (now[1] - before[1]) / max(1e-9, now[0] - before[0])
        yield min(1.0, load) if load > _LITTLE else 0.0
        before = now


async def _computed(client: EngineClient) -> float:
    """Seconds of all steps together, since the engine started."""
    try:
        return (await client.stats(patience=5.0)).step_seconds.sum
    except EngineUnavailable:
        return 0.0
