"""Sliders."""

from collections.abc import Callable

from nicegui.elements.mixins.text_element import TextElement
from nicegui.events import GenericEventArguments

from loragate.panel.parts.elements.tag import tag

# Without it, the slider would be redrawn at its old position.
_KEEP = "(e) => { element.props.value = e.target.value; emit(e.target.value); }"


def slider(
    label: str,
    value: float,
    on_change: Callable[[float], None],
    *,
    minimum: float = 0,
    maximum: float = 100,
    step: float = 1,
) -> TextElement:
    """Draw a slider. `on_change` receives every value while it moves."""
    made = tag(
        "input", classes="range", type="range", min=minimum, max=maximum, step=step, value=value, aria_label=label
    )

    def moved(event: GenericEventArguments) -> None:
        with made.props.suspend_updates():  # the browser already shows it there
            made.props["value"] = value = float(event.args)
        on_change(value)

    made.on("input", moved, js_handler=_KEEP)
    return made
