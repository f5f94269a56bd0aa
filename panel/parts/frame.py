"""The frame of every page: the menu, the signed-in caller, and the theme switch."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from nicegui import ui

from loragate.panel.caller import Caller
from loragate.panel.parts.elements.button import icon_button
from loragate.panel.parts.elements.tag import div, tag
from loragate.panel.parts.notify import add_toast_container

_HEAD = '<link rel="stylesheet" href="/static/panel.css"><script src="/static/panel.js"></script>'


@dataclass(frozen=True)
class Entry:
    """An entry of the menu. `wants` is a scope, "operator", "tenant", or several of them joined with " or "."""

    title: str
    path: str
    icon: str
    wants: str

    def is_for(self, caller: Caller) -> bool:
        return any(_is(caller, each) for each in self.wants.split(" or "))


def _is(caller: Caller, wanted: str) -> bool:
    if wanted in ("operator", "tenant"):
        return caller.is_operator == (wanted == "operator")
    return caller.may(wanted)


MENU = (
    Entry("Overview", "/", "o_space_dashboard", ""),
    Entry("Adapters", "/adapters", "o_layers", ""),
    Entry("Playground", "/playground", "o_forum", "inference"),
    Entry("Classify", "/classify", "o_label", "inference"),
    Entry("Fine-tuning", "/fine-tuning", "o_school", ""),
    Entry("Batches", "/batches", "o_dynamic_feed", "inference or operator"),
    Entry("Responses", "/responses", "o_inventory_2", "inference"),
    Entry("Training", "/training", "o_model_training", "train or operator"),
    Entry("Usage", "/usage", "o_bar_chart", ""),
    Entry("Keys", "/keys", "o_key", "tenant"),
    Entry("Tenants", "/tenants", "o_group", "operator"),
    Entry("Engine", "/engine", "o_memory", "operator"),
    Entry("Audit", "/audit", "o_history", "admin"),
)


@contextmanager
def frame(caller: Caller, path: str) -> Iterator[None]:
    """Draw the frame; the block's elements are the page."""
    ui.add_head_html(_HEAD)
    tag("a", "Skip to content", classes="skip", href="#main")
    with div("frame"):
        _top()
        _side(caller, path)
        with tag("main", classes="main", id="main", tabindex="-1"):
            yield
    add_toast_container()


def heading(title: str, words: str = "", back: tuple[str, str] | None = None, *, level: int = 1) -> None:
    """Draw the title of a page, or with level 2 of a section. `back` is the name and path of the parent page."""
    with div("words"):
        if back is not None:
            tag("a", f"← {back[0]}", classes="crumb", href=back[1])
        tag(f"h{level}", title)
        if words:
            tag("p", words, classes="muted")


def _top() -> None:
    with tag("header", classes="topbar"):
        icon_button("o_menu", None, "Menu", popovertarget="side")
        _brand()


def _side(caller: Caller, path: str) -> None:
    with tag("nav", classes="side", id="side", popover="auto", aria_label="Pages"):
        _brand()
        for entry in MENU:
            if not entry.wants or entry.is_for(caller):
                _entry(entry, path)
        with div("foot"):
            with div("who"):
                tag("span", "Signed in as", classes="muted small")
                tag("b", caller.name)
            with div("row-of apart"):
                with tag("form", method="post", action="/sign-out"):
                    tag("button", "Sign out", classes="button small", type="submit")
                icon_button("o_contrast", None, "Switch between light and dark", data_theme_switch="")


def _brand() -> None:
    with tag("a", classes="brand", href="/"):
        tag("img", src="/static/favicon.svg", alt="")
        tag("span", "loragate")


def _entry(entry: Entry, path: str) -> None:
    here = path == entry.path or (entry.path != "/" and path.startswith(f"{entry.path}/"))
    with tag("a", classes="entry", href=entry.path, aria_current="page" if here else None):
        ui.icon(entry.icon)
        tag("span", entry.title)
