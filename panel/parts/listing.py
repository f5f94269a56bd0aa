"""Paginated lists, of which one page at a time is fetched and shown."""

from collections.abc import Awaitable, Callable

from loragate.panel.api import Json
from loragate.panel.parts.async_region import AsyncRegion
from loragate.panel.parts.elements.tag import div
from loragate.panel.parts.pager import Cursor, pager

ROWS = 50


class Listing:
    """A card with a page of rows: `fetch` returns the page after a row, `show` draws it, `nothing` draws an empty
    list."""

    def __init__(
        self,
        fetch: Callable[[str | None], Awaitable[Json]],
        show: Callable[[Json], None],
        nothing: Callable[[], None],
        *,
        every: float | None = None,
    ) -> None:
        self._fetch = fetch
        self._show = show
        self._nothing = nothing
        self._cursor = Cursor()
        self._region: AsyncRegion[Json] = AsyncRegion(self._ask, self._draw, every=every)

    async def load(self) -> None:
        """Reload the current page."""
        await self._region.load()

    async def restart(self) -> None:
        """Load the first page, after the filters have changed."""
        self._cursor.reset()
        await self._region.load()

    async def _ask(self) -> Json:
        return await self._fetch(self._cursor.after)

    def _draw(self, page: Json) -> None:
        with div("card flush"):
            if page["data"]:
                self._show(page)
            else:
                self._nothing()
            pager(self._cursor, page["last_id"], page["has_more"], self._region.load)
