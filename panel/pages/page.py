"""From a request to a page: whose it is, what it is about, and when it ends."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from nicegui import ui
from starlette.requests import Request

from loragate.panel.api import Api
from loragate.panel.caller import Caller
from loragate.panel.parts.display.empty import empty
from loragate.panel.parts.display.tag import link
from loragate.panel.parts.frame import Entry, frame
from loragate.panel.sessions import Session


@dataclass(frozen=True)
class Here:
    """What a page is drawn from. `names` are those in its path, `query` what stands behind it."""

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
    """`wants` is an entry's, or "" for a page that is anybody's."""

    path: str
    title: str
    draw: Callable[[Here], None]
    wants: str = ""


def add_page(spec: PageSpec) -> None:
    """Makes a route of it."""

    async def show(request: Request) -> None:
        here = Here(request.state.session, request.path_params, request.query_params)
        _belongs_to(here.session)
        with frame(here.caller, request.url.path):
            if spec.wants and not Entry(spec.title, spec.path, "", spec.wants).is_for(here.caller):
                _closed(spec)
            else:
                spec.draw(here)

    ui.page(spec.path, title=f"{spec.title} · loragate")(show)


def _belongs_to(session: Session) -> None:
    client = ui.context.client

    def end(why: str) -> None:
        with client:
            ui.navigate.to(f"/sign-in?ended={why}")

    session.pages[client.id] = end
    client.on_delete(lambda: session.pages.pop(client.id, None))


def _closed(spec: PageSpec) -> None:
    with empty("o_lock", "Not with this key", f"Your key does not open “{spec.title}”. Sign in with one that does."):
        link("To the overview", "/", "button")
