"""How many engines a fleet needs by its queues: for those that start engines, such as Ray Serve."""

from collections.abc import Sequence


def engines_wanted(
    queue_seconds: Sequence[float], requests: Sequence[float], *, max_queue_seconds: float, requests_per_engine: float
) -> int:
    """Return the number of engines: one more while they wait too long, one fewer while the others would do.

    The sequences have the figures of each running engine. The caller applies bounds, and waits until a change has been
    wanted for a while.
    """
    running = len(queue_seconds)
    if running and sum(queue_seconds) / running > max_queue_seconds:
        return running + 1
    if sum(requests) <= (running - 1) * requests_per_engine:
        return max(1, running - 1)
    return max(1, running)
