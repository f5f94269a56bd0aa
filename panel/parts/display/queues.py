"""Queues beside each other: a bar for each, and its figures in words."""

from collections.abc import Sequence
from dataclasses import dataclass

from loragate.panel.parts.display import formats
from loragate.panel.parts.display.tag import div, tag


@dataclass(frozen=True)
class Queue:
    """Whose it is, how many are being served, and how many wait."""

    name: str
    running: int
    waiting: int

    @property
    def told(self) -> str:
        """A line for those who see no bar."""
        return f"{self.name}: {self.words}"

    @property
    def words(self) -> str:
        return f"{formats.count(self.running)} in the batch, {formats.count(self.waiting)} waiting"


def queues(label: str, rows: Sequence[Queue]) -> None:
    """All on one scale."""
    most = max((row.running + row.waiting for row in rows), default=0) or 1
    with tag("ul", classes="queues", aria_label=label):
        for row in rows:
            with tag("li"):
                with div("row-of apart"):
                    tag("span", row.name, classes="break")
                    tag("span", row.words, classes="muted small")
                with div("meter parts", aria_hidden="true"):
                    div().style(f"width: {row.running / most:.2%}")
                    div("waits").style(f"width: {row.waiting / most:.2%}")
