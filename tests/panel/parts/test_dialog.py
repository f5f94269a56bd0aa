"""A confirmed action goes on when its dialog has been hidden."""

import asyncio
from typing import Any

import pytest
from nicegui import Client, core, ui
from nicegui.elements.mixins.text_element import TextElement

from loragate.panel.parts.dialog import confirm


async def test_a_confirmed_action_goes_on_after_its_dialog_is_deleted(
    box: TextElement, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core, "loop", asyncio.get_running_loop())
    seen: list[Client] = []
    hidden, ended = asyncio.Event(), asyncio.Event()

    async def act() -> None:
        await hidden.wait()
        seen.append(ui.context.client)  # as navigation and notifications do
        ended.set()

    with box:
        confirm("Delete?", "For good.", "Delete", act)
    (dialog,) = [each for each in box.client.layout.descendants() if isinstance(each, ui.dialog)]
    (button,) = [each for each in dialog.descendants() if getattr(each, "text", "") == "Delete"]
    await _click(box.client, button)
    dialog.delete()
    hidden.set()
    await asyncio.wait_for(ended.wait(), 10)
    assert seen == [box.client]


async def _click(client: Client, element: Any) -> None:
    (listener,) = element._event_listeners
    client.handle_event({"id": element.id, "listener_id": listener, "args": []})
    await asyncio.sleep(0)
