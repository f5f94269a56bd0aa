"""Redrawn elements keep their identity: clicks, focus and open lists stay on the same rows."""

from functools import partial
from typing import Any

import pytest
from nicegui import Client
from nicegui.element import Element
from nicegui.elements.mixins.text_element import TextElement

from loragate.panel.api import Json
from loragate.panel.parts.display.table import Column, table
from loragate.panel.parts.elements.button import button
from loragate.panel.parts.elements.slider import slider
from loragate.panel.parts.elements.tag import div
from loragate.panel.parts.keyed_redraw import keyed_redraw
from loragate.panel.parts.pager import Cursor

Pressed = list[str]


def _rows(pressed: Pressed, *rows: Json) -> None:
    def acts(row: Json) -> None:
        for act in row["acts"]:
            button(act, partial(pressed.append, f"{act} {row['id']} {row['state']}"))

    table("Jobs", [Column[Json]("State", lambda row: str(row["state"])), Column[Json]("", acts)], rows)


def _row(name: str, *acts: str, state: str = "queued") -> Json:
    return {"id": name, "state": state, "acts": acts}


def _buttons(box: Element) -> list[Any]:
    return [each for each in box.descendants() if each.tag == "button"]


def _click(client: Client, seen: tuple[int, str]) -> None:
    """Click as a browser does that still shows the old element."""
    client.handle_event({"id": seen[0], "listener_id": seen[1], "args": []})


def _seen(element: Any) -> tuple[int, str]:
    (listener,) = element._event_listeners
    return element.id, listener


def _sent(client: Client) -> dict[int, Any]:
    """Return the messages that the browser is about to receive."""
    found = dict(client.outbox.updates)
    client.outbox.updates.clear()
    return found


async def test_a_click_on_an_old_element_acts_on_its_current_row(box: TextElement) -> None:
    pressed: Pressed = []
    with keyed_redraw(box):
        _rows(pressed, _row("a", "Resume", "Cancel"), _row("b", "Cancel"))
    resume, cancel, other = map(_seen, _buttons(box))
    with keyed_redraw(box):
        _rows(pressed, _row("new", "Cancel"), _row("a", "Pause", "Cancel", state="running"), _row("b", "Cancel"))
    for seen in (cancel, other, resume):
        _click(box.client, seen)
    assert pressed == ["Cancel a running", "Cancel b queued"], "and what is offered no longer does nothing"


async def test_only_differences_are_sent(box: TextElement) -> None:
    with keyed_redraw(box):
        _rows([], _row("a", "Cancel"), _row("b", "Cancel"))
    known = set(box.client.elements)
    _sent(box.client)
    with keyed_redraw(box):
        _rows([], _row("a", "Cancel"), _row("b", "Cancel", state="running"))
    (state,) = [each for each in box.descendants() if getattr(each, "text", "") == "running"]
    assert set(_sent(box.client)) == {box.id, state.id}
    assert set(box.client.elements) == known


async def test_removed_rows_leave_the_page(box: TextElement) -> None:
    with keyed_redraw(box):
        _rows([], _row("a", "Cancel"), _row("b", "Cancel"))
    gone = _buttons(box)[1].id
    _sent(box.client)
    with keyed_redraw(box):
        _rows([], _row("a", "Cancel"))
    assert gone not in box.client.elements
    assert not isinstance(_sent(box.client)[gone], Element)
    assert {each.id for each in box.descendants()} | {box.id} <= set(box.client.elements)


async def test_a_drawing_error_keeps_the_earlier_content(box: TextElement) -> None:
    pressed: Pressed = []
    with keyed_redraw(box):
        _rows(pressed, _row("a", "Cancel"))
    shown, seen = list(box), _seen(_buttons(box)[0])
    with pytest.raises(KeyError), keyed_redraw(box):
        _rows(pressed, _row("b", "Cancel"), {})
    assert list(box) == shown
    _click(box.client, seen)
    assert pressed == ["Cancel a queued"]


async def test_work_begun_in_a_row_finishes_there_after_a_redraw(box: TextElement) -> None:
    def draw() -> None:
        with keyed_redraw(box), div("row-of"):
            button("Go", lambda: None)

    draw()
    began_in = _buttons(box)[0].parent_slot
    draw()
    assert began_in.parent is next(iter(box))
    assert not began_in.parent.is_deleted


async def test_rows_moved_by_the_user_return_on_a_redraw(box: TextElement) -> None:
    def draw() -> TextElement:
        with keyed_redraw(box):
            return slider("Share", 90, lambda value: None)

    number, listener = _seen(draw())
    _sent(box.client)
    box.client.handle_event({"id": number, "listener_id": listener, "args": ['"70"']})
    assert number not in _sent(box.client), "the browser has it there already"
    draw()
    assert _sent(box.client)[number].props["value"] == 90


def test_next_pressed_twice_on_one_page_is_one_step() -> None:
    cursor = Cursor()
    for _ in range(2):
        cursor.forward(1, "row-50")
    assert (cursor.page, cursor.after) == (2, "row-50")
    cursor.forward(2, "row-100")
    for _ in range(2):
        cursor.back(3)
    assert (cursor.page, cursor.after) == (2, "row-50")
