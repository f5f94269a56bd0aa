"""The choice of the engine that serves a request."""

from collections.abc import Callable, Collection, Mapping, Sequence

PREFIX_SLACK = 0.25
"""How much more loaded than the least loaded member one may be that has a request's prefix in its cache."""


def choose(
    members: Sequence[str],
    loads: Mapping[str, float],
    *,
    has_bytes: Callable[[str], bool] = lambda engine: True,
    cached: Collection[str] = (),
) -> str:
    """Return the least loaded of the members whose disk has the adapter's bytes.

    Where none has them, it is the first in the adapter's order, so that the bytes are fetched once. `loads` are the
    parts of the engines' capacity in use, which may exceed 1; `cached` are the engines that have the request's prefix.
    """
    ready = [engine for engine in members if has_bytes(engine)]
    if not ready:
        return members[0]
    least = min(loads[engine] for engine in ready)
    near = [engine for engine in ready if engine in cached and loads[engine] <= least + PREFIX_SLACK]
    return min(near or ready, key=lambda engine: (loads[engine], ready.index(engine)))
