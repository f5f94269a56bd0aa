"""Change notices: each process notifies all others of its changes.

A notice names the tenant that changed, or whose keys, adapters or aliases changed. Notices can be lost (a broken
connection to Redis), so caches must also expire by time. A listener that may have missed notices is called with
`None`.
"""

from collections.abc import Callable
from typing import Protocol

Listener = Callable[[str | None], None]


class Notices(Protocol):
    """Sends and receives change notices."""

    async def announce(self, tenant_id: str) -> None:
        """Notify this process's listeners and send the notice to other processes; never raises."""
        ...

    def subscribe(self, listener: Listener) -> None:
        """Register a listener, which must not block or raise."""
        ...


class LocalNotices:
    """Notices of a single process."""

    def __init__(self) -> None:
        self._listeners: list[Listener] = []

    async def announce(self, tenant_id: str) -> None:
        self.notify(tenant_id)

    def subscribe(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def notify(self, tenant_id: str | None) -> None:
        """Notify this process's listeners only."""
        for listener in self._listeners:
            listener(tenant_id)
