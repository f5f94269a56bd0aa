"""Code blocks with a copy button."""

from nicegui import ui

from loragate.panel.parts.elements.button import button
from loragate.panel.parts.elements.tag import div, tag
from loragate.panel.parts.notify import notify


def code_block(text: str, label: str) -> None:
    """Draw a piece of code with a button that copies it."""
    with div("stack tight"):
        with div("row-of apart"):
            tag("span", label, classes="muted small")
            button("Copy", lambda: copy(text), "small quiet", label=f"Copy {label}")
        tag("pre", text, classes="code", tabindex="0")


def copy(text: str) -> None:
    """Copy to the clipboard, which browsers allow only with TLS or on localhost."""
    ui.clipboard.write(text)
    notify("Copied.")
