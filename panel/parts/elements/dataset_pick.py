"""A picker for files of examples, which are validated in the browser and then uploaded."""

from collections.abc import Callable
from typing import Any

from nicegui.element import Element


class DatasetPick(Element, component="dataset_pick.js"):
    """`on_examined` receives a file's format, or "" if it has problems, which are shown and prevent the upload.

    `on_sent` receives the API's status, or 0 if there was no response, and its document.
    """

    def __init__(
        self,
        label: str,
        words: str,
        on_examined: Callable[[str], Any],
        on_sent: Callable[[int, dict[str, Any]], Any],
    ) -> None:
        super().__init__()
        self.props["label"] = label
        self.props["words"] = words
        self.on("examined", lambda event: on_examined("" if event.args["problems"] else event.args["format"]))
        self.on("verdict", lambda event: on_sent(event.args["status"], event.args["document"]))
