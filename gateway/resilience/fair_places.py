"""Places that owners share: tenants, or addresses of clients that are not known yet."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager


class NoPlace(Exception):
    """The owner holds its share already, or all places are taken."""


class FairPlaces:
    """`capacity` places, of which an owner may hold as many as it leaves free, and at most `most`.

    One owner alone therefore gets half of the places, two get a third each, and a place stays free for owners that
    hold none: a flood from one of them does not affect the others (Choudhury and Hahne, "Dynamic Queue Length
    Thresholds for Shared-Memory Packet Switches", 1998).
    """

    def __init__(self, capacity: int, most: int | None = None) -> None:
        self._capacity = capacity
        self._most = capacity if most is None else most
        self._held: Counter[str] = Counter()
        self._total = 0

    @contextmanager
    def hold(self, owner: str) -> Iterator[None]:
        """Hold a place during the block. Raise NoPlace."""
        if self._held[owner] >= min(self._most, self._capacity - self._total):
            raise NoPlace
        self._held[owner] += 1
        self._total += 1
        try:
            yield
        finally:
            self._total -= 1
            self._held[owner] -= 1
            if not self._held[owner]:
                del self._held[owner]
