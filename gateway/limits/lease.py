"""An admitted request's lease on its limits."""

from collections.abc import Mapping
from typing import Protocol

EXTENSION = 256  # tokens at a time


class LeaseListener(Protocol):
    """Receives the changes of a lease; neither method waits."""

    def extend(self, tokens: int) -> None:
        """Record that the request uses this many more tokens."""

    def settle(self, tokens: int) -> None:
        """Record that the request has ended and used this many tokens in total."""


class Lease:
    """One admitted request's place and tokens. `headers` are its `x-ratelimit-*` headers, as of its admission."""

    def __init__(self, reserved: int, headers: Mapping[str, str], listener: LeaseListener | None) -> None:
        self.reserved = reserved  # tokens set aside for it
        self.headers = headers
        self._listener = listener  # None: nothing limits the request

    def extend(self, tokens: int) -> None:
        """Reserve more, because the request has used `tokens` by now, which exceeds what was reserved."""
        more = max(EXTENSION, tokens - self.reserved)
        self.reserved += more
        if self._listener is not None:
            self._listener.extend(more)

    def settle(self, tokens: int) -> None:
        """End the lease; the request used `tokens`. Return at once."""
        if self._listener is not None:
            self._listener.settle(tokens)
