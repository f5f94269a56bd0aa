"""Plain HTML elements. Text and attributes are data to the browser, never markup."""

from typing import Any

from nicegui.elements.mixins.text_element import TextElement


def tag(name: str, text: str = "", *, classes: str = "", **attributes: Any) -> TextElement:
    """`aria_label` is the attribute `aria-label`, `for_` is `for`; one that is None is left out."""
    element = TextElement(tag=name, text=text)
    if classes:
        element.classes(classes)
    with element.props.suspend_updates():
        for key, value in attributes.items():
            if value is not None:
                element.props[key.rstrip("_").replace("_", "-")] = value
    return element


def div(classes: str = "", **attributes: Any) -> TextElement:
    """A box of this kind."""
    return tag("div", classes=classes, **attributes)


def muted(text: str, classes: str = "") -> TextElement:
    """A quiet line."""
    return tag("p", text, classes=f"muted {classes}".strip())


def link(text: str, href: str, classes: str = "") -> TextElement:
    """To another page of the panel."""
    return tag("a", text, classes=classes, href=href)
