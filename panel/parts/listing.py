"""Lists that the server cuts into pages: one page at a time is asked for and shown."""

from collections.abc import Awaitable, Callable

from loragate.panel.api import Json
from loragate.panel.parts.async_region import Region
from loragate.panel.parts.display.tag import div
from loragate.panel.parts.pager import Cursor, pager

ROWS = 50


class Listing:
    """A card. `fetch` asks for the page after a row, `show` draws its rows, `nothing` what stands where there are
    none."""

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
        self._region: Region[Json] = Region(self._ask, self._draw, every=every)

    async def load(self) -> None:
        """The same page again."""
        await self._region.load()

    async def restart(self) -> None:
        """The first page of what is asked for now."""
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
