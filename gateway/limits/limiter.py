"""What holds callers to their limits."""

from collections.abc import Mapping
from typing import Protocol

from loragate.adapter_store.principal import TenantPrincipal


class Lease(Protocol):
    """One admitted request's place and tokens."""

    reserved: int  # tokens set aside for it

    @property
    def headers(self) -> Mapping[str, str]:
        """`x-ratelimit-*`: how much there is, and was left after this request."""

    def extend(self, tokens: int) -> None:
        """It has used this many by now, more than was set aside."""

    def settle(self, tokens: int) -> None:
        """It has ended, and used this many. Returns at once."""


class Limiter(Protocol):
    """One per process."""

    async def admit(self, caller: TenantPrincipal, adapter_id: str | None, tokens: int) -> Lease:
        """Set aside one request of so many tokens, or raise RateLimited and touch nothing."""


class _Unbounded:
    headers: Mapping[str, str] = {}

    def __init__(self, tokens: int) -> None:
        self.reserved = tokens

    def extend(self, tokens: int) -> None:
        self.reserved = tokens

    def settle(self, tokens: int) -> None:
        self.reserved = 0


class NoLimits:
    """Admits everybody."""

    async def admit(self, caller: TenantPrincipal, adapter_id: str | None, tokens: int) -> Lease:
        """Always."""
        return _Unbounded(tokens)
