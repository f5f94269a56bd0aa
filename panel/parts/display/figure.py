"""A figure with its name."""

from loragate.panel.parts.display.tag import div, tag


def figure(name: str, value: str, note: str = "") -> None:
    """In a small card."""
    with div("card figure"):
        tag("span", name, classes="name")
        tag("span", value, classes="value")
        tag("span", note, classes="note")
