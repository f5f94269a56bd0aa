"""A part of a page that is fetched by itself: the page never waits for it, and it says what went wrong."""

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from nicegui import ui

from loragate.panel.failure import Failure, SignedOut
from loragate.panel.parts.button import button
from loragate.panel.parts.tag import div, tag

T = TypeVar("T")


class Region(Generic[T]):
    """`fetch` asks, `draw` shows what came; `every` so many seconds again. What is shown stays until there is more."""

    def __init__(
        self, fetch: Callable[[], Awaitable[T]], draw: Callable[[T], None], *, every: float | None = None
    ) -> None:
        self._fetch = fetch
        self._draw = draw
        self._trouble = div("stack")
        self._box = div("stack wide")
        self._shown: T | None = None
        with self._box, div("waiting", aria_label="Loading", role="status"):
            for _ in range(3):
                tag("span")
        ui.timer(0.01, self.load, once=True)
        if every is not None:
            ui.timer(every, self.load, immediate=False)

    async def load(self) -> None:
        """Fetches again, and draws what has changed."""
        try:
            found = await self._fetch()
        except SignedOut:
            ui.navigate.to("/sign-in?ended=key")
            return
        except Failure as failure:
            self._show(failure)
            return
        self._trouble.clear()
        if found == self._shown and found is not None:
            return
        self._shown = found
        self._box.clear()
        with self._box:
            self._draw(found)

    def empty(self) -> None:
        """There is nothing to show any more."""
        self._shown = None
        self._trouble.clear()
        self._box.clear()

    def _show(self, failure: Failure) -> None:
        self._trouble.clear()
        if self._shown is None:
            self._box.clear()
        with self._trouble:
            trouble(failure, self.load)


def trouble(failure: Failure, again: Callable[[], Awaitable[None]]) -> None:
    """What went wrong, and a way to try once more."""
    with div("notice bad", role="alert"):
        tag("p", failure.message, classes="grow")
        button("Try again", again, "small")
