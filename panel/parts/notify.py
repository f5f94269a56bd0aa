"""Short words at the edge of the page, and acts that end in them."""

from collections.abc import Awaitable, Callable
from typing import Any

from nicegui import ui

from loragate.panel.failure import Failure, SignedOut
from loragate.panel.parts.controls.button import button
from loragate.panel.parts.display.tag import div, tag

_PLACE = "toasts"
_SECONDS, _WRONG_SECONDS, _UNDO_SECONDS = 5.0, 10.0, 15.0


def place_for_words() -> None:
    """Once a page."""
    ui.context.client.storage[_PLACE] = div("toasts", aria_live="polite")


def said(text: str) -> None:
    """It worked."""
    _toast(text, "status", _SECONDS)


def wrong(text: str) -> None:
    """It did not."""
    _toast(text, "alert", _WRONG_SECONDS, "bad")


def undoable(text: str, undo: Callable[[], Awaitable[Any]]) -> None:
    """It worked, and can be taken back for a while."""
    _toast(text, "status", _UNDO_SECONDS, undo=undo)


async def attempt(work: Awaitable[Any], done: str = "") -> bool:
    """Whether it worked; says what it did, or in words why not."""
    with ui.context.client:  # what was pressed may be gone by then
        try:
            await work
        except SignedOut:
            ui.navigate.to("/sign-in?ended=key")
            return False
        except Failure as failure:
            wrong(failure.message)
            return False
        if done:
            said(done)
        return True


def _toast(
    text: str, role: str, seconds: float, kind: str = "", undo: Callable[[], Awaitable[Any]] | None = None
) -> None:
    with ui.context.client.storage[_PLACE], div(f"toast {kind}".strip(), role=role) as toast:
        tag("span", text, classes="grow")
        if undo is not None:
            again = undo

            async def take_back() -> None:
                toast.delete()
                await again()

            button("Undo", take_back, "small")
        ui.timer(seconds, toast.delete, once=True)
