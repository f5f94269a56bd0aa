"""Change notices: what one process changed, told to all of them at once.

A notice names the tenant which itself, or whose keys, adapters or aliases changed. Notices may be lost (a broken
connection to Redis); whoever caches must bound what it keeps by time as well. A listener that may have missed some is
told `None`.
"""

from collections.abc import Callable
from typing import Protocol

Listener = Callable[[str | None], None]


class Notices(Protocol):
    """How processes hear of changes."""

    async def announce(self, tenant_id: str) -> None:
        """Returns when this process's listeners have heard it and the others' were sent it; never raises."""
        ...

    def subscribe(self, listener: Listener) -> None:
        """`listener` must not block or raise."""
        ...


class LocalNotices:
    """For the only process there is."""

    def __init__(self) -> None:
        self._listeners: list[Listener] = []

    async def announce(self, tenant_id: str) -> None:
        self.notify(tenant_id)

    def subscribe(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def notify(self, tenant_id: str | None) -> None:
        """To this process's listeners only."""
        for listener in self._listeners:
            listener(tenant_id)
