"""Text to copy."""

from nicegui import ui

from loragate.panel.parts.controls.button import button
from loragate.panel.parts.display.tag import div, tag
from loragate.panel.parts.notify import said


def code_block(text: str, label: str) -> None:
    """A piece of code with a button that copies it."""
    with div("stack tight"):
        with div("row-of apart"):
            tag("span", label, classes="muted small")
            button("Copy", lambda: copy(text), "small quiet", label=f"Copy {label}")
        tag("pre", text, classes="code", tabindex="0")


def copy(text: str) -> None:
    """To the clipboard, which browsers open to pages with TLS or on this machine."""
    ui.clipboard.write(text)
    said("Copied.")
