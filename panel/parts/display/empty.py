"""Where there is nothing yet: what to do next."""

from collections.abc import Iterator
from contextlib import contextmanager

from nicegui import ui

from loragate.panel.parts.display.tag import div, tag


@contextmanager
def empty(icon: str, title: str, words: str) -> Iterator[None]:
    """A block's elements are the ways on."""
    with div("empty"):
        ui.icon(icon)
        tag("h2", title)
        tag("p", words)
        yield
