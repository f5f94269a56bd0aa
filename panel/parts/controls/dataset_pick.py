"""Where a file of examples is chosen: looked through in the browser, then sent to the API's files."""

from collections.abc import Callable
from typing import Any

from nicegui.element import Element


class DatasetPick(Element, component="dataset_pick.js"):
    """`on_examined` hears a file's format, or "" where it has problems, which are shown and keep it from being sent;
    `on_sent` the API's status, 0 where nobody answered, and its document."""

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
