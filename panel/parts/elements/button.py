"""Buttons."""

from collections.abc import Callable
from typing import Any

from nicegui import ui
from nicegui.elements.mixins.text_element import TextElement

from loragate.panel.parts.elements.tag import tag


def button(text: str, on_click: Callable[..., Any] | None, kind: str = "", *, label: str | None = None) -> TextElement:
    """Draw a button. `kind`: primary, danger, quiet, small, or several. `label` is the text for screen readers."""
    made = tag("button", text, classes=f"button {kind}".strip(), type="button", aria_label=label)
    if on_click is not None:
        made.on("click", on_click, args=[])
    return made


def icon_button(icon: str, on_click: Callable[..., Any] | None, label: str, **attributes: Any) -> TextElement:
    """Draw an icon as a button, with `label` as tooltip and for screen readers."""
    made = tag("button", classes="button quiet icon", type="button", aria_label=label, title=label, **attributes)
    with made:
        ui.icon(icon)
    if on_click is not None:
        made.on("click", on_click, args=[])
    return made
