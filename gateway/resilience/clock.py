"""Time for deadlines."""

import time

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def elapsed() -> float:
    """Seconds that no change of the wall clock moves, and that go on while the machine sleeps (where it can tell)."""
    return time.clock_gettime(_CLOCK)
