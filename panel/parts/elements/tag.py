"""Plain HTML elements, whose texts and attributes are never parsed as markup."""

from typing import Any

from nicegui.elements.mixins.text_element import TextElement


def tag(name: str, text: str = "", *, classes: str = "", **attributes: Any) -> TextElement:
    """Draw an element. `aria_label` becomes `aria-label`, `for_` becomes `for`; None leaves an attribute out."""
    element = TextElement(tag=name, text=text)
    if classes:
        element.classes(classes)
    with element.props.suspend_updates():
        for key, value in attributes.items():
            if value is not None:
                element.props[key.rstrip("_").replace("_", "-")] = value
    return element


def div(classes: str = "", **attributes: Any) -> TextElement:
    """Draw a div with these classes."""
    return tag("div", classes=classes, **attributes)


def muted(text: str, classes: str = "") -> TextElement:
    """Draw a paragraph in a muted colour."""
    return tag("p", text, classes=f"muted {classes}".strip())


def link(text: str, href: str, classes: str = "") -> TextElement:
    """Draw a link to another page of the panel."""
    return tag("a", text, classes=classes, href=href)
