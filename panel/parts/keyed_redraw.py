"""Drawing a part of a page anew while the browser keeps what is the same in it.

A click under way, the focus and an open list stay with the element they were on; one that is there no longer is never
taken for another: what is pressed must say the same, and what is one of several carries a mark (`Element.mark`).
"""

import weakref
from collections import defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from nicegui import ui
from nicegui.element import Element
from nicegui.elements.mixins.text_element import TextElement

_KEPT = (TextElement, ui.icon, ui.html, ui.select)


@contextmanager
def redrawn(box: Element) -> Iterator[None]:
    """A block's elements are what `box` holds from now on. Where drawing them fails, what it held stays."""
    slot = box.default_slot
    before, slot.children = slot.children, []
    try:
        with box:
            yield
    except BaseException:
        _forget(slot.children)
        slot.children = before
        box.update()
        raise
    _keep(before, slot.children)
    box.update()


def _keep(before: list[Element], now: list[Element]) -> None:
    """Gives those that were there their places in the browser back; the rest of `before` goes."""
    there: defaultdict[Any, deque[Element]] = defaultdict(deque)
    for old in before:
        there[_what(old)].append(old)
    for new in now:
        if there[_what(new)]:
            _take_over(there[_what(new)].popleft(), new)
    _forget([old for left in there.values() for old in left])


def _forget(elements: list[Element]) -> None:
    for each in elements:
        each.client.remove_elements(each.descendants(include_self=True))


def _what(element: Element) -> Any:
    """What an element and the one in its place have in common."""
    if type(element) not in _KEPT:
        return id(element)
    props = element._props
    heard = tuple((each.type, str(each.args), each.js_handler) for each in element._event_listeners.values())
    says = (element._text, props.get("label")) if heard else ()
    named = (props.get("aria-label"), props.get("href"), *element._markers)
    return type(element), element.tag, " ".join(element._classes), named, heard, says


def _take_over(old: Element, new: Element) -> None:
    """`new` is to the browser what `old` was; it hears of it only where they differ."""
    client, outbox = new.client, new.client.outbox
    unsent = old.id in outbox.updates
    shown = old._to_dict()
    _keep(list(old.default_slot.children), new.default_slot.children)
    old.default_slot.children = []
    for known, listener in zip(old._event_listeners.values(), list(new._event_listeners.values()), strict=True):
        del new._event_listeners[listener.id]
        listener.id, listener.element_id = known.id, old.id
        new._event_listeners[listener.id] = listener
    _forget([old])
    del client.elements[new.id]
    for number in (new.id, old.id):
        outbox.updates.pop(number, None)
    new.id = old.id
    client.elements[new.id] = new
    for name, slot in old.slots.items():
        slot._parent = weakref.ref(new.slots[name].parent)  # what was begun there goes on
    if unsent or new._to_dict() != shown:
        new.update()
