"""Notifications at the edge of the page."""

from collections.abc import Awaitable, Callable
from typing import Any

from nicegui import ui

from loragate.panel.api import ApiError, SignedOut
from loragate.panel.parts.elements.button import button
from loragate.panel.parts.elements.tag import div, tag

_PLACE = "toasts"
_SECONDS, _WRONG_SECONDS, _UNDO_SECONDS = 5.0, 10.0, 15.0


def add_toast_container() -> None:
    """Add the container for notifications, once per page."""
    ui.context.client.storage[_PLACE] = div("toasts", aria_live="polite")


def notify(text: str) -> None:
    """Report success."""
    _toast(text, "status", _SECONDS)


def notify_error(text: str) -> None:
    """Report a failure."""
    _toast(text, "alert", _WRONG_SECONDS, "bad")


def notify_with_undo(text: str, undo: Callable[[], Awaitable[Any]]) -> None:
    """Report success, with a button that undoes the action for a while."""
    _toast(text, "status", _UNDO_SECONDS, undo=undo)


async def run_and_notify(work: Awaitable[Any], done: str = "") -> bool:
    """Await `work` and return whether it succeeded. Reports `done`, or the error."""
    with ui.context.client:  # the pressed button may have been removed by then
        try:
            await work
        except SignedOut:
            ui.navigate.to("/sign-in?ended=key")
            return False
        except ApiError as failure:
            notify_error(failure.message)
            return False
        if done:
            notify(done)
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
