"""Page navigation in a paginated list."""

from collections.abc import Awaitable, Callable

from loragate.panel.parts.elements.button import button
from loragate.panel.parts.elements.tag import div, tag


class Cursor:
    """The position in a list whose pages are addressed by the last row of the previous page."""

    def __init__(self) -> None:
        self._before: list[str | None] = [None]

    @property
    def after(self) -> str | None:
        return self._before[-1]

    def reset(self) -> None:
        self._before = [None]

    def forward(self, page: int, last_id: str) -> None:
        """Go from this page to the one after its last row. A double click is one step."""
        self._before = [*self._before[:page], last_id]

    def back(self, page: int) -> None:
        """Go from this page to the previous one."""
        self._before = self._before[: max(1, page - 1)]

    @property
    def page(self) -> int:
        return len(self._before)


def pager(cursor: Cursor, last_id: str | None, has_more: bool, load: Callable[[], Awaitable[None]]) -> None:
    """Draw the navigation, unless everything fits on one page."""
    page = cursor.page
    if page == 1 and not has_more:
        return

    async def back() -> None:
        cursor.back(page)
        await load()

    async def forward() -> None:
        assert last_id is not None
        cursor.forward(page, last_id)
        await load()

    with div("pager"):
        tag("span", f"Page {page}")
        earlier = button("Previous", back, "small")
        later = button("Next", forward, "small")
        earlier.props["disabled"] = page == 1
        later.props["disabled"] = not has_more
