"""The dialog for a new batch: its file of requests, the endpoint, the completion window, and metadata."""

from collections.abc import Awaitable, Callable
from typing import Any

from nicegui import ui
from nicegui.elements.mixins.validation_element import ValidationElement

from loragate.panel.api import ApiError, Json, SignedOut
from loragate.panel.pages.page import PageContext
from loragate.panel.parts.async_region import AsyncRegion
from loragate.panel.parts.dialog import open_dialog
from loragate.panel.parts.display import formats
from loragate.panel.parts.elements.button import button
from loragate.panel.parts.elements.fields import area_field, choice_field, text_field
from loragate.panel.parts.elements.lines_pick import LinesPick
from loragate.panel.parts.elements.tag import div, tag
from loragate.panel.parts.keyed_redraw import keyed_redraw
from loragate.panel.parts.notify import notify, notify_error

_ENDPOINTS = ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/embeddings", "/v1/classify")
_FILE = "input_file_id"


def batch_dialog(context: PageContext, then: Callable[[], Awaitable[None]]) -> None:
    """Open the dialog. `then` is called when the batch has been created."""
    with open_dialog("New batch") as dialog:
        _BatchDialog(context, dialog, then)


class _BatchDialog:
    def __init__(self, context: PageContext, dialog: ui.dialog, then: Callable[[], Awaitable[None]]) -> None:
        self._context = context
        self._dialog = dialog
        self._then = then
        self._file = ""
        self._uploading = False
        self._url = ""  # of the requests in the file that was examined
        self._earlier: ui.select | None = None
        LinesPick(
            "Requests",
            "Drop a file of requests here, with one JSON object per line.",
            self._examined,
            self._sent,
            purpose="batch",
            endpoints=_ENDPOINTS,
        )
        self._problem = div("hidden", role="alert")
        AsyncRegion(self._files, self._draw_files)
        self._endpoint = choice_field("Endpoint", _ENDPOINTS, _ENDPOINTS[0])
        self._window = text_field("Completion window", "24h", hint="Hours or days, from 1h to 30d")
        self._metadata = area_field("Metadata", rows=2, placeholder="team=care")
        self._metadata.props["hint"] = "NAME=TEXT, one per line"
        with div("row-of apart"):
            button("Cancel", dialog.close)
            self._go = button("Create batch", self._create, "primary")

    async def _files(self) -> dict[str, str]:
        found = await self._context.api.get("/v1/files", purpose="batch", limit=100)
        return {file["id"]: f"{file['filename']}, {formats.size(file['bytes'])}" for file in found["data"]}

    def _draw_files(self, files: dict[str, str]) -> None:
        if files:
            self._earlier = choice_field("Or an uploaded file", files).props("clearable")
            self._earlier.on_value_change(lambda event: self._choose(event.value))

    def _examined(self, url: str) -> None:
        if self._earlier is not None:
            self._earlier.value = None
        self._file, self._url, self._uploading = "", url, bool(url)
        self._show_problem("")
        if url:
            self._endpoint.value = url

    def _sent(self, status: int, document: Json) -> None:
        chosen_meanwhile, self._uploading = not self._uploading, False
        if status == 401:
            ui.navigate.to("/sign-in?ended=key")
        elif chosen_meanwhile:
            return
        elif 200 <= status < 300:
            self._file = document["id"]
        else:
            message = "The upload was interrupted. Try again."
            self._show_problem((document.get("error") or {}).get("message", message))

    def _choose(self, file: str | None) -> None:
        self._file, self._url, self._uploading = file or "", "", False
        self._show_problem("")

    async def _create(self) -> None:
        body = self._body()
        if body is None:
            return
        self._go.props["disabled"] = True
        try:
            await self._context.api.post("/v1/batches", body)
        except SignedOut:
            ui.navigate.to("/sign-in?ended=key")
        except ApiError as failure:
            self._show_failure(failure)
        else:
            self._dialog.close()
            notify("The batch was created.")
            await self._then()
        finally:
            self._go.props["disabled"] = False

    def _body(self) -> Json | None:
        """Return the request; None if a field has an error, which is shown beside it."""
        self._show_problem("")
        for field in self._named().values():
            field.error = None
        if not self._file:
            uploading = "The file is still being uploaded. Create the batch when it is complete."
            self._show_problem(uploading if self._uploading else "Choose a file of requests.")
        if self._url not in ("", self._endpoint.value):
            self._endpoint.error = f"The requests in the file are for {self._url}"
        body = {
            _FILE: self._file,
            "endpoint": self._endpoint.value,
            "completion_window": (self._window.value or "").strip(),
        }
        lines = [line for line in (self._metadata.value or "").splitlines() if line.strip()]
        pairs = [line.partition("=") for line in lines]
        if not all(name.strip() and equals for name, equals, _ in pairs):
            self._metadata.error = "Each line must be NAME=TEXT"
        if not self._file or any(field.error for field in self._named().values()):
            return None
        labels = {name.strip(): text.strip() for name, _, text in pairs}
        return body | ({"metadata": labels} if labels else {})

    def _show_failure(self, failure: ApiError) -> None:
        """Show an error beside the field that caused it, if there is one."""
        param = (failure.param or "").partition(".")[0]
        words = failure.message.removeprefix(f"Invalid '{failure.param}': ")
        words = words[:1].upper() + words[1:]
        if param == _FILE:
            self._show_problem(words)
        elif param in self._named():
            self._named()[param].error = words
        else:
            notify_error(failure.message)

    def _named(self) -> dict[str, ValidationElement[Any]]:
        return {"endpoint": self._endpoint, "completion_window": self._window, "metadata": self._metadata}

    def _show_problem(self, words: str) -> None:
        self._problem.classes(replace="notice bad" if words else "hidden")
        with keyed_redraw(self._problem):
            tag("p", words, classes="grow")
