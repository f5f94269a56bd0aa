"""One admitted request's place and tokens."""

from collections.abc import Mapping
from typing import Protocol

EXTENSION = 256  # tokens at a time


class Ends(Protocol):
    """Whom a lease tells; neither waits."""

    def extend(self, tokens: int) -> None:
        """So many more."""

    def settle(self, tokens: int) -> None:
        """So many in all."""


class Lease:
    """`headers` are `x-ratelimit-*`: how much there is, and was left after this request."""

    def __init__(self, reserved: int, headers: Mapping[str, str], ends: Ends | None) -> None:
        self.reserved = reserved  # tokens set aside for it
        self.headers = headers
        self._ends = ends  # None: nothing limits it

    def extend(self, tokens: int) -> None:
        """It has used this many by now, more than was set aside."""
        more = max(EXTENSION, tokens - self.reserved)
        self.reserved += more
        if self._ends is not None:
            self._ends.extend(more)

    def settle(self, tokens: int) -> None:
        """It has ended, and used this many. Returns at once."""
        if self._ends is not None:
            self._ends.settle(tokens)
