"""What the sections of an adapter's page share."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from loragate.panel.api import Api, path
from loragate.panel.pages.page import PageContext


@dataclass(frozen=True)
class AdapterContext:
    """The page, the adapter's name, whether the caller may change it, and how to fetch the whole page again."""

    page: PageContext
    name: str
    may_write: bool
    reload: Callable[[], Awaitable[None]]

    @property
    def api(self) -> Api:
        return self.page.api

    def at(self, *parts: str | int) -> str:
        """Return the API's path of the adapter, or of a resource below it."""
        return path("v1", "adapters", self.name, *parts)
