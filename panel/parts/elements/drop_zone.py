"""A drop zone for the two files of an adapter."""

from collections.abc import Callable, Mapping
from typing import Any

from nicegui.element import Element
from nicegui.events import GenericEventArguments


class DropZone(Element, component="drop_zone.js"):
    """`on_picked` receives the name of a dropped folder and the missing files.

    `on_verdict` receives the API's status, or 0 if there was no response, and its document.
    """

    def __init__(
        self,
        on_picked: Callable[[str, list[str]], Any],
        on_verdict: Callable[[int, dict[str, Any]], Any],
    ) -> None:
        super().__init__()
        self.on("picked", lambda event: on_picked(*_picked(event)))
        self.on("verdict", lambda event: on_verdict(event.args["status"], event.args["document"]))

    def send(self, url: str, fields: Mapping[str, str]) -> None:
        """Start the upload."""
        self.run_method("send", url, dict(fields))


def _picked(event: GenericEventArguments) -> tuple[str, list[str]]:
    return str(event.args["folder"]), list(event.args["missing"])
