"""Where a file of examples is chosen: looked through in the browser, then sent to the API's files."""

from collections.abc import Callable
from typing import Any

from nicegui.element import Element


class DatasetPick(Element, component="dataset_pick.js"):
    """`on_sent` hears the API's status, 0 where nobody answered, and its document; `on_bad` that a file has problems,
    which are shown and keep it from being sent."""

    def __init__(
        self,
        label: str,
        words: str,
        on_sent: Callable[[int, dict[str, Any]], Any],
        on_bad: Callable[[], Any],
    ) -> None:
        super().__init__()
        self.props["label"] = label
        self.props["words"] = words
        self.on("examined", lambda event: on_bad() if event.args["problems"] else None)
        self.on("verdict", lambda event: on_sent(event.args["status"], event.args["document"]))
