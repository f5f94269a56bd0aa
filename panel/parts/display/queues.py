"""Queues as bars with their figures."""

from collections.abc import Sequence
from dataclasses import dataclass

from loragate.panel.parts.display import formats
from loragate.panel.parts.elements.tag import div, tag


@dataclass(frozen=True)
class Queue:
    """A tenant's running and waiting requests."""

    name: str
    running: int
    waiting: int

    @property
    def description(self) -> str:
        """Return the queue as one line of text."""
        return f"{self.name}: {self.words}"

    @property
    def words(self) -> str:
        return f"{formats.count(self.running)} running, {formats.count(self.waiting)} waiting"


def queues(label: str, rows: Sequence[Queue]) -> None:
    """Draw all queues on one scale."""
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
