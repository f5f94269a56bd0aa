"""A part of a page that is fetched by itself: the page never waits for it, and it says what went wrong."""

import logging
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from nicegui import ui

from loragate.panel.failure import Failure, SignedOut
from loragate.panel.parts.controls.button import button
from loragate.panel.parts.display.tag import div, tag
from loragate.panel.parts.keyed_redraw import redrawn

log = logging.getLogger(__name__)

_AGAIN_SECONDS = 2.0  # after a failure that ends by itself
_AWAY = 503

T = TypeVar("T")


class Region(Generic[T]):
    """`fetch` asks, `draw` shows what came; `every` so many seconds again. What is shown stays until there is more.

    While the gateway or something behind it is away it asks again by itself.
    """

    def __init__(
        self, fetch: Callable[[], Awaitable[T]], draw: Callable[[T], None], *, every: float | None = None
    ) -> None:
        self._fetch = fetch
        self._draw = draw
        self._polls = every is not None
        self._asked = 0
        self._trouble = div("stack")
        self._box = div("stack wide")
        self._shown: T | None = None
        with self._box, div("waiting", aria_label="Loading", role="status"):
            for _ in range(3):
                tag("span")
        ui.timer(0.01, self.load, once=True)
        self._again = ui.timer(every or _AGAIN_SECONDS, self.load, active=self._polls, immediate=False)

    async def load(self) -> None:
        """Fetches again, and draws what has changed; an answer that a later question has overtaken is not drawn."""
        self._asked += 1
        mine = self._asked
        try:
            found = await self._fetch()
            if self._awaits(mine):
                self._show(found)
        except SignedOut:
            ui.navigate.to("/sign-in?ended=key")
        except Failure as failure:
            if self._awaits(mine):
                self._fail(failure)
        except Exception:
            log.exception("a part of a page cannot be shown")
            if self._awaits(mine):
                self._fail(Failure("Something unexpected came back, which this page cannot show."))

    def empty(self) -> None:
        """There is nothing to show any more."""
        self._shown = None
        self._trouble.clear()
        self._box.clear()

    def _awaits(self, question: int) -> bool:
        return question == self._asked and not self._box.is_deleted

    def _show(self, found: T) -> None:
        self._trouble.clear()
        self._again.active = self._polls
        if found == self._shown and found is not None:
            return
        with redrawn(self._box):
            self._draw(found)
        self._shown = found

    def _fail(self, failure: Failure) -> None:
        self._again.active = self._polls or failure.status == _AWAY
        if self._shown is None:
            self._box.clear()
        with redrawn(self._trouble):
            trouble(failure, self.load)


def trouble(failure: Failure, again: Callable[[], Awaitable[None]]) -> None:
    """What went wrong, and a way to try once more."""
    with div("notice bad", role="alert"):
        tag("p", failure.message, classes="grow")
        button("Try again", again, "small")
