"""Empty states, with what to do next."""

from collections.abc import Iterator
from contextlib import contextmanager

from nicegui import ui

from loragate.panel.parts.elements.tag import div, tag


@contextmanager
def empty(icon: str, title: str, words: str) -> Iterator[None]:
    """Draw an empty state; the block's elements are its actions."""
    with div("empty"):
        ui.icon(icon)
        tag("h2", title)
        tag("p", words)
        yield
