"""Detection of a silent peer, not counting time in which this process itself was stopped."""

import asyncio

_TICK = 0.25


class HeartbeatMonitor:
    """Measures silence in ticks of the event loop.

    While this whole process is stopped, messages of the peer may arrive and wait unread, so that time does not
    count.
    """

    def __init__(self) -> None:
        self._ticks = 0

    def reset(self) -> None:
        """Restart the count after a message."""
        self._ticks = 0

    async def wait_expired(self, seconds: float) -> None:
        """Return once there was no message for this long."""
        while self._ticks * _TICK < seconds:
            await asyncio.sleep(_TICK)
            self._ticks += 1
