"""The upload dialog: two files, a name, and the result of the check."""

from collections.abc import Awaitable, Callable
from typing import Any

from nicegui import ui

from loragate.panel.pages.page import PageContext
from loragate.panel.parts.dialog import open_dialog
from loragate.panel.parts.elements.button import button
from loragate.panel.parts.elements.drop_zone import DropZone
from loragate.panel.parts.elements.fields import text_field
from loragate.panel.parts.elements.tag import div, tag
from loragate.panel.parts.keyed_redraw import keyed_redraw
from loragate.panel.parts.notify import notify


def upload_dialog(context: PageContext, then: Callable[[str], Awaitable[None]], name: str = "") -> None:
    """Open the dialog. `then` receives the adapter's name; `name` is given for a new version of an adapter."""
    with open_dialog(f"New version of {name}" if name else "Upload an adapter") as dialog:
        _Upload(name, then, dialog)


class _Upload:
    def __init__(self, name: str, then: Callable[[str], Awaitable[None]], dialog: ui.dialog) -> None:
        self._fixed = name
        self._then = then
        self._dialog = dialog
        self._missing = ["the files"]
        self._zone = DropZone(self._picked, self._verdict)
        self._name = text_field("Name", name, hint="The name in requests: letters, digits, dots and dashes")
        self._name.set_visibility(not name)
        alias = "The alias to point at the new version; with canary, it is tried beside the current one" if name else ""
        self._alias = text_field("Alias", "default", hint=alias)
        self._tags = text_field("Tags", placeholder="team:verse, three-lines")
        self._notes = text_field("Notes on this version")
        self._tags.set_visibility(not name)
        self._words = div("hidden", role="alert")
        with div("row-of apart"):
            self._close = button("Cancel", dialog.close)
            self._go = button("Upload", self._send, "primary")

    def _picked(self, folder: str, missing: list[str]) -> None:
        self._missing = missing
        if folder and not self._name.value:
            self._name.value = folder
        self._show_message("", "")

    def _send(self) -> None:
        if self._missing:
            self._show_message(f"Missing: {' and '.join(self._missing)}.", "warn")
        elif not self._name.value.strip():
            self._show_message("Enter a name for the adapter.", "warn")
        else:
            self._show_message("", "")
            self._busy(True)
            given = {"name": self._name, "alias": self._alias, "tags": self._tags, "notes": self._notes}
            texts = {field: (element.value or "").strip() for field, element in given.items()}
            self._zone.send("/transfer/adapters", {field: text for field, text in texts.items() if text})

    async def _verdict(self, status: int, document: dict[str, Any]) -> None:
        self._busy(False)
        if status == 201:
            self._dialog.close()
            notify(f"{document['name']} version {document['version']} has been checked and is ready.")
            await self._then(document["name"])
        elif status == 401:
            ui.navigate.to("/sign-in?ended=key")
        else:
            error = document.get("error") or {
                "message": "The upload was interrupted: the panel or the gateway did not respond."
            }
            field = f" ({error['param']})" if error.get("param") else ""
            self._show_message(f"Rejected{field}: {error['message']}" if status else error["message"], "bad")

    def _busy(self, busy: bool) -> None:
        self._go.props["disabled"] = busy
        self._go.text = "Uploading…" if busy else "Upload"

    def _show_message(self, words: str, kind: str) -> None:
        self._words.classes(replace=f"notice {kind}" if words else "hidden")
        with keyed_redraw(self._words):
            tag("p", words, classes="grow")
