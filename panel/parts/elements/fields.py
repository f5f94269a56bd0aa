"""Form fields with a common look."""

from collections.abc import Mapping, Sequence
from typing import Any

from nicegui import ui

_LOOK = "outlined dense"
# When the server sets a text, NiceGUI sends the text and, a moment later, a call that shows the property again. Without
# this, that call would undo what was typed in between.
_KEEP_TYPED = "(value) => { element.props.value = value; }"


def text_field(label: str, value: str = "", *, hint: str = "", placeholder: str = "") -> ui.input:
    """Draw a one-line text field."""
    made = ui.input(label, value=value, placeholder=placeholder or None).props(_LOOK)
    made.props["hint"] = hint or None
    made.on("update:value", js_handler=_KEEP_TYPED)
    return made


def area_field(label: str, value: str = "", *, rows: int = 3, placeholder: str = "") -> ui.textarea:
    """Draw a multi-line text field."""
    made = ui.textarea(label, value=value, placeholder=placeholder or None).props(_LOOK)
    made.props["rows"] = rows
    made.on("update:value", js_handler=_KEEP_TYPED)
    return made


def number_field(
    label: str, value: float | None = None, *, minimum: float = 0, maximum: float | None = None, step: float = 1
) -> ui.number:
    """Draw a number field; the value of an empty one is None."""
    made = ui.number(label, value=value, min=minimum, max=maximum, step=step).props(_LOOK)
    made.props["inputmode"] = "decimal"
    return made


def choice_field(label: str, choices: Mapping[Any, str] | Sequence[str], value: Any = None, **more: Any) -> ui.select:
    """Draw a selection of one choice, or of several with `multiple=True`."""
    options = dict(choices) if isinstance(choices, Mapping) else list(choices)
    return ui.select(options, label=label or None, value=value, **more).props(f"{_LOOK} options-dense")
