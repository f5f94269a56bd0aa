"""Dialogs, and confirmations before actions."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from nicegui import ui

from loragate.panel.parts.elements.button import button
from loragate.panel.parts.elements.tag import div, tag


@contextmanager
def open_dialog(title: str) -> Iterator[ui.dialog]:
    """Open a dialog for the block's elements. Closing it deletes it."""
    with ui.context.client.layout:  # not in a previous dialog, which is about to be deleted
        dialog = ui.dialog()
    dialog.props["aria-label"] = title
    dialog.on("hide", dialog.delete)
    with dialog, div("sheet"), div("stack"):
        tag("h2", title)
        yield dialog
    dialog.open()


def confirm(title: str, words: str, act: str, then: Callable[[], Awaitable[Any]]) -> None:
    """Ask for confirmation before an action that cannot be undone."""

    client = ui.context.client

    async def go() -> None:
        dialog.close()
        with client:  # the dialog, and the button in it, may be deleted while the action runs
            await then()

    with open_dialog(title) as dialog:
        tag("p", words, classes="muted break")
        with div("row-of apart"):
            button("Cancel", dialog.close)
            button(act, go, "danger")
