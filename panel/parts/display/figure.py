"""Key figures."""

from loragate.panel.parts.elements.tag import div, tag


def figure(name: str, value: str, note: str = "") -> None:
    """Draw a figure with its name and a note in a small card."""
    with div("card figure"):
        tag("span", name, classes="name")
        tag("span", value, classes="value")
        tag("span", note, classes="note")
