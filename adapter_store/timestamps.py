"""Time in the store: aware datetimes in UTC inside, RFC 3339 outside."""

import time
from datetime import UTC, datetime
from typing import overload

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_DRIFT = 0.0002  # by which a wall clock may be slower than the clock of this machine
_JUMP_SECONDS = 60.0  # a wall clock that is ahead by more has been set forward, or is wrong


def elapsed() -> float:
    """Return seconds that ignore changes of the wall clock and, where the system has such a clock, include sleep."""
    return time.clock_gettime(_CLOCK)


class SteadyTime:
    """Decides by a wall clock, which may be set, whether something has expired.

    A clock that is set back revives nothing: the time since an earlier reading still counts. A clock that jumps forward
    is believed while it is ahead, since the jump may be a correction, but it is not remembered: when it is corrected,
    what had not expired is valid again.
    """

    def __init__(self) -> None:
        self._anchor: tuple[float, float] | None = None  # the wall clock's reading, and `elapsed` at that moment

    def now(self, wall: float) -> float:
        """Return the time that counts, given the wall clock's reading in seconds."""
        moment = elapsed()
        if self._anchor is None:
            self._anchor = wall, moment
            return wall
        reading, then = self._anchor
        drift = _DRIFT * (moment - then)
        earliest = reading + (moment - then) - drift
        if earliest <= wall <= earliest + 2 * drift + _JUMP_SECONDS:
            self._anchor = wall, moment
        return max(wall, earliest)


def utc_now() -> datetime:
    """Return the time by this process's clock."""
    return datetime.now(UTC)


@overload
def rfc3339(moment: datetime) -> str: ...


@overload
def rfc3339(moment: None) -> None: ...


def rfc3339(moment: datetime | None) -> str | None:
    """Return `2026-01-31T09:30:00.000Z`: in UTC, to the millisecond, as the API writes times."""
    return None if moment is None else moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
