"""Redrawing a section of a page while the browser keeps the elements that are unchanged.

Focus, open lists and clicks in progress stay with their element. A removed element is never confused with another one:
clickable elements are matched by their text, and items of a list by their mark (`Element.mark`).
"""

import weakref
from collections import defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from nicegui import ui
from nicegui.element import Element
from nicegui.elements.mixins.text_element import TextElement

_REUSABLE = (TextElement, ui.icon, ui.html, ui.select)


@contextmanager
def keyed_redraw(box: Element) -> Iterator[None]:
    """Replace the content of `box` with the block's elements. If drawing them fails, the old content stays."""
    slot = box.default_slot
    before, slot.children = slot.children, []
    try:
        with box:
            yield
    except BaseException:
        _remove(slot.children)
        slot.children = before
        box.update()
        raise
    _reuse(before, slot.children)
    box.update()


def _reuse(before: list[Element], now: list[Element]) -> None:
    """Let each new element take over an equal old one, and remove the other old ones."""
    there: defaultdict[Any, deque[Element]] = defaultdict(deque)
    for old in before:
        there[_identity(old)].append(old)
    for new in now:
        if there[_identity(new)]:
            _take_over(there[_identity(new)].popleft(), new)
    _remove([old for left in there.values() for old in left])


def _remove(elements: list[Element]) -> None:
    for each in elements:
        each.client.remove_elements(each.descendants(include_self=True))


def _identity(element: Element) -> Any:
    """Return the key by which old and new elements are matched."""
    if type(element) not in _REUSABLE:
        return id(element)
    props = element._props
    heard = tuple((each.type, str(each.args), each.js_handler) for each in element._event_listeners.values())
    says = (element._text, props.get("label")) if heard else ()
    named = (props.get("aria-label"), props.get("href"), *element._markers)
    return type(element), element.tag, " ".join(element._classes), named, heard, says


def _take_over(old: Element, new: Element) -> None:
    """Give `new` the identity that `old` has in the browser, and update the browser only if they differ."""
    client, outbox = new.client, new.client.outbox
    unsent = old.id in outbox.updates
    shown = old._to_dict()
    _reuse(list(old.default_slot.children), new.default_slot.children)
    old.default_slot.children = []
    for known, listener in zip(old._event_listeners.values(), list(new._event_listeners.values()), strict=True):
        del new._event_listeners[listener.id]
        listener.id, listener.element_id = known.id, old.id
        new._event_listeners[listener.id] = listener
    _remove([old])
    del client.elements[new.id]
    for number in (new.id, old.id):
        outbox.updates.pop(number, None)
    new.id = old.id
    client.elements[new.id] = new
    for name, slot in old.slots.items():
        slot._parent = weakref.ref(new.slots[name].parent)  # so that handlers that are still running keep working
    if unsent or new._to_dict() != shown:
        new.update()
