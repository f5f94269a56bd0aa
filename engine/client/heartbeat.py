"""Silence of another process, without the time in which this one was held up itself."""

import asyncio

_TICK = 0.25


class Silence:
    """Counted in ticks of the event loop: when all of this process stood still, what the other side said meanwhile may
    be there unread."""

    def __init__(self) -> None:
        self._ticks = 0

    def ends(self) -> None:
        """Something was heard."""
        self._ticks = 0

    async def lasts(self, seconds: float) -> None:
        """Returns once it has lasted so long."""
        while self._ticks * _TICK < seconds:
            await asyncio.sleep(_TICK)
            self._ticks += 1
