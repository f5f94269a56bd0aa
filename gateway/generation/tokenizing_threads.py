"""Threads that render and tokenize long prompts, within a budget of bytes."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from loragate.gateway.errors import OVERLOADED, TooManyRequests, Unavailable
from loragate.gateway.resilience.tenant_threads import TenantThreads

T = TypeVar("T")

_RETRY_SECONDS = 2.0
_NICENESS = 10  # below the event loop and the engine: a tenant's long prompts may take a processor all the time


class TokenizingThreads:
    """One per process. Tenants take turns.

    `max_bytes` bounds the text that waits or is tokenized. A tenant may use as much of it as it leaves free for others,
    so however much some of them send, another one finds room. `on_rejection` is called with the tenant's id.
    """

    def __init__(self, max_bytes: int, on_rejection: Callable[[str], None]) -> None:
        self._threads = TenantThreads("tokenize", _NICENESS)
        self._free = max_bytes
        self._held: Counter[str] = Counter()  # bytes by tenant
        self._on_rejection = on_rejection

    async def run(self, tenant_id: str, size: int, work: Callable[[], T]) -> T:
        """Return what `work` returns; it tokenizes `size` bytes.

        Raise TooManyRequests where the tenant's other prompts are in the way, Unavailable where those of others are.
        """
        with self._reserved(tenant_id, size):
            return await self._threads.run(tenant_id, work)

    def close(self) -> None:
        """Drop the prompts that wait."""
        self._threads.close()

    @contextmanager
    def _reserved(self, tenant_id: str, size: int) -> Iterator[None]:
        held = self._held[tenant_id]
        if held + size > self._free - size:
            self._on_rejection(tenant_id)
            if held:
                message = f"{held} bytes of your requests' text are being tokenized already. Wait for some of them."
                raise TooManyRequests(message, code=OVERLOADED, retry_after=_RETRY_SECONDS)
            message = "The server has too much text to tokenize at the moment. Please try again."
            raise Unavailable(message, code=OVERLOADED, retry_after=_RETRY_SECONDS)
        self._free -= size
        self._held[tenant_id] = held + size
        try:
            yield
        finally:
            self._free += size
            self._held[tenant_id] -= size
            if not self._held[tenant_id]:
                del self._held[tenant_id]
