"""Dialogs."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from nicegui import ui

from loragate.panel.parts.controls.button import button
from loragate.panel.parts.display.tag import div, tag


@contextmanager
def sheet(title: str) -> Iterator[ui.dialog]:
    """Open at once; gone, with all that is in it, when it closes."""
    with ui.context.client.layout:  # not in the dialog that it may follow, which goes
        dialog = ui.dialog()
    dialog.props["aria-label"] = title
    dialog.on("hide", dialog.delete)
    with dialog, div("sheet"), div("stack"):
        tag("h2", title)
        yield dialog
    dialog.open()


def confirm(title: str, words: str, act: str, then: Callable[[], Awaitable[Any]]) -> None:
    """Asks before what cannot be taken back."""

    async def go() -> None:
        dialog.close()
        await then()

    with sheet(title) as dialog:
        tag("p", words, classes="muted break")
        with div("row-of apart"):
            button("Cancel", dialog.close)
            button(act, go, "danger")
