"""A section of a page that is fetched asynchronously and shows its own errors."""

import logging
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from nicegui import ui

from loragate.panel.api import ApiError, SignedOut
from loragate.panel.parts.elements.button import button
from loragate.panel.parts.elements.tag import div, tag
from loragate.panel.parts.keyed_redraw import keyed_redraw

log = logging.getLogger(__name__)

_RETRY_SECONDS = 2.0  # while the gateway is unavailable
_UNAVAILABLE = 503

T = TypeVar("T")


class AsyncRegion(Generic[T]):
    """Shows with `draw` what `fetch` returns, and repeats that every `every` seconds, if given.

    The last content stays until new content arrives. While the gateway is unavailable, the region retries
    automatically.
    """

    def __init__(
        self, fetch: Callable[[], Awaitable[T]], draw: Callable[[T], None], *, every: float | None = None
    ) -> None:
        self._fetch = fetch
        self._draw = draw
        self._polls = every is not None
        self._requests = 0
        self._error_box = div("stack")
        self._box = div("stack wide")
        self._shown: T | None = None
        with self._box, div("waiting", aria_label="Loading", role="status"):
            for _ in range(3):
                tag("span")
        ui.timer(0.01, self.load, once=True)
        self._timer = ui.timer(every or _RETRY_SECONDS, self.load, active=self._polls, immediate=False)

    async def load(self) -> None:
        """Fetch again and draw what has changed. A response that a later request has overtaken is discarded."""
        self._requests += 1
        mine = self._requests
        try:
            found = await self._fetch()
            if self._is_latest(mine):
                self._show(found)
        except SignedOut:
            ui.navigate.to("/sign-in?ended=key")
        except ApiError as failure:
            if self._is_latest(mine):
                self._show_error(failure)
        except Exception:
            log.exception("a section of a page could not be drawn")
            if self._is_latest(mine):
                self._show_error(ApiError("The gateway returned an unexpected response, which this page cannot show."))

    def empty(self) -> None:
        """Clear the region."""
        self._shown = None
        self._error_box.clear()
        self._box.clear()

    def _is_latest(self, request: int) -> bool:
        return request == self._requests and not self._box.is_deleted

    def _show(self, found: T) -> None:
        self._error_box.clear()
        self._timer.active = self._polls
        if found == self._shown and found is not None:
            return
        with keyed_redraw(self._box):
            self._draw(found)
        self._shown = found

    def _show_error(self, failure: ApiError) -> None:
        self._timer.active = self._polls or failure.status == _UNAVAILABLE
        if self._shown is None:
            self._box.clear()
        with keyed_redraw(self._error_box):
            error_notice(failure, self.load)


def error_notice(failure: ApiError, again: Callable[[], Awaitable[None]]) -> None:
    """Show an error with a button to try again."""
    with div("notice bad", role="alert"):
        tag("p", failure.message, classes="grow")
        button("Try again", again, "small")
