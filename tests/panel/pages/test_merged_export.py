"""The button of a version's merged model, without a browser."""

from types import SimpleNamespace
from typing import Any

import pytest
from nicegui.elements.mixins.text_element import TextElement

from loragate.panel.pages.adapters.merged_export import draw_merged_export

READY = {"version": 1, "status": "ready", "classifier": None}


@pytest.mark.parametrize(
    ("switched_on", "changes", "words"),
    [
        (True, {}, None),
        (False, {}, "LORAGATE_MERGED_EXPORTS"),
        (True, {"status": "quarantined"}, "corrupt"),
        (True, {"classifier": {"labels": ["a"]}}, "classifier"),
    ],
)
async def test_where_nothing_can_be_exported_the_tooltip_says_why(
    box: TextElement, switched_on: bool, changes: dict[str, Any], words: str | None
) -> None:
    context: Any = SimpleNamespace(name="poet")
    with box:
        draw_merged_export(context, READY | changes, switched_on=switched_on)
    (button,) = box
    assert (button.props.get("aria-disabled") == "true") == (words is not None)
    assert words is None or words in button.props["title"]
    assert bool(button._event_listeners) == (words is None)
