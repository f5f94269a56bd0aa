"""How many engines hold an adapter, from its demand; which ones follows from its order of them (`rendezvous`).

Nothing here has a state of its own: gateways that know the same demand and the same engines come to the same sizes.
"""

import math
from dataclasses import dataclass, replace

MAX_PORTION = 0.25
"""The part of one engine's work that one adapter may be before a further engine holds it too."""

SPARE_BELOW = 0.6
"""A set shrinks while its members would each do less than this part of MAX_PORTION with one member fewer."""

SHRINK_SECONDS = 300.0
"""How long a smaller set must have been enough before it shrinks by one."""

MAX_QUEUE_SECONDS = 1.0
"""A set grows by one when requests wait longer than this at each of its members."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What an adapter's requests take: a part of the whole fleet's work, and their wait at the least loaded member."""

    share: float
    queue_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class SetSize:
    """The number of engines that hold an adapter; `spare_since` is since when one fewer would do, by the clock."""

    engines: int = 1
    spare_since: float | None = None
    grown_at: float = -math.inf


def resize(size: SetSize, demand: Demand, engines: int, now: float) -> SetSize:
    """Return the size that the demand calls for. A set grows at once and shrinks slowly.

    `engines` is the number of healthy ones, and `now` a time in seconds by a clock that does not go back.
    """
    needed = _needed(demand.share, engines, MAX_PORTION)
    if demand.queue_seconds > MAX_QUEUE_SECONDS and now - size.grown_at > MAX_QUEUE_SECONDS:
        needed = max(needed, size.engines + 1)
    if needed > size.engines:
        return SetSize(min(needed, engines), None, now)
    if size.engines > engines:
        return SetSize(max(1, engines))
    if size.engines == 1 or _needed(demand.share, engines, SPARE_BELOW * MAX_PORTION) >= size.engines:
        return replace(size, spare_since=None)
    if size.spare_since is None:
        return replace(size, spare_since=now)
    if now - size.spare_since < SHRINK_SECONDS:
        return size
    return replace(size, engines=size.engines - 1, spare_since=now)


def _needed(share: float, engines: int, portion: float) -> int:
    return max(1, math.ceil(share * engines / portion))
