"""A picker for files of JSON lines, which are validated in the browser and then uploaded."""

from collections.abc import Callable, Sequence
from typing import Any

from nicegui.element import Element


class LinesPick(Element, component="lines_pick.js"):
    """`on_examined` receives a file's format, or "" if it has problems, which are shown and prevent the upload. The
    format of a batch's file is the endpoint of its requests, one of `endpoints`.

    `on_sent` receives the API's status, or 0 if there was no response, and its document.
    """

    def __init__(
        self,
        label: str,
        words: str,
        on_examined: Callable[[str], Any],
        on_sent: Callable[[int, dict[str, Any]], Any],
        *,
        purpose: str = "fine-tune",
        endpoints: Sequence[str] = (),
    ) -> None:
        super().__init__()
        self.props["label"] = label
        self.props["words"] = words
        self.props["purpose"] = purpose
        self.props["endpoints"] = list(endpoints)
        self.on("examined", lambda event: on_examined("" if event.args["problems"] else event.args["format"]))
        self.on("verdict", lambda event: on_sent(event.args["status"], event.args["document"]))
