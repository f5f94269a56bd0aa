"""Sliders."""

from collections.abc import Callable

from nicegui.elements.mixins.text_element import TextElement
from nicegui.events import GenericEventArguments

from loragate.panel.parts.display.tag import tag

_KEEP = "(e) => { element.props.value = e.target.value; emit(e.target.value); }"  # else it is drawn where it was before


def slider(
    label: str,
    value: float,
    on_change: Callable[[float], None],
    *,
    least: float = 0,
    most: float = 100,
    step: float = 1,
) -> TextElement:
    """`on_change` hears each value that it stands at."""
    made = tag("input", classes="range", type="range", min=least, max=most, step=step, value=value, aria_label=label)

    def moved(event: GenericEventArguments) -> None:
        with made.props.suspend_updates():  # the browser has it there already
            made.props["value"] = value = float(event.args)
        on_change(value)

    made.on("input", moved, js_handler=_KEEP)
    return made
