"""Pages as routes: their context, access and end."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from nicegui import ui
from starlette.requests import Request

from loragate.panel.api import Api
from loragate.panel.caller import Caller
from loragate.panel.parts.display.empty import empty
from loragate.panel.parts.elements.tag import link
from loragate.panel.parts.frame import Entry, frame
from loragate.panel.sessions import Session


@dataclass(frozen=True)
class PageContext:
    """The inputs of a page: the session, the names in its path and its query."""

    session: Session
    names: Mapping[str, str]
    query: Mapping[str, str]

    @property
    def api(self) -> Api:
        return self.session.api

    @property
    def caller(self) -> Caller:
        return self.session.caller


@dataclass(frozen=True)
class PageSpec:
    """A page's route. `wants` is that of a menu entry, or "" for a page that is open to every caller."""

    path: str
    title: str
    draw: Callable[[PageContext], None]
    wants: str = ""


def add_page(spec: PageSpec) -> None:
    """Register the page's route."""

    async def show(request: Request) -> None:
        context = PageContext(request.state.session, request.path_params, request.query_params)
        _belongs_to(context.session)
        with frame(context.caller, request.url.path):
            if spec.wants and not Entry(spec.title, spec.path, "", spec.wants).is_for(context.caller):
                _closed(spec)
            else:
                spec.draw(context)

    ui.page(spec.path, title=f"{spec.title} · loragate")(show)


def _belongs_to(session: Session) -> None:
    client = ui.context.client

    def end(why: str) -> None:
        with client:
            ui.navigate.to(f"/sign-in?ended={why}")

    session.pages[client.id] = end
    client.on_delete(lambda: session.pages.pop(client.id, None))


def _closed(spec: PageSpec) -> None:
    with empty("o_lock", "No access", f"Sign in with a key that can open “{spec.title}”."):
        link("Go to the overview", "/", "button")
