"""Signing in and out: plain pages, so that a key is posted once and never comes back."""

from html import escape
from pathlib import Path
from string import Template
from urllib.parse import parse_qs

from nicegui import __version__ as nicegui_version
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from loragate.panel.api import Api
from loragate.panel.caller import caller_of
from loragate.panel.config import PanelConfig
from loragate.panel.cookie import SessionCookie
from loragate.panel.failure import Failure, SignedOut
from loragate.panel.guard import SIGN_IN
from loragate.panel.login_throttle import Attempts
from loragate.panel.origins import Origins
from loragate.panel.sessions import Session, Sessions

_PAGE = Template((Path(__file__).parent / "static" / "sign_in.html").read_text(encoding="utf-8"))
_MOST_BODY = 16 << 10
_ENDINGS = {
    "over": "Your session has ended. Sign in again to go on.",
    "idle": "Your session has ended because nothing happened for a while. Sign in again to go on.",
    "key": "This key is not valid any more. Sign in with another one.",
    "out": "You are signed out.",
}


class SignIn:
    """The routes around a session's beginning and end."""

    def __init__(self, config: PanelConfig, sessions: Sessions, cookie: SessionCookie, origins: Origins) -> None:
        self._config = config
        self._sessions = sessions
        self._cookie = cookie
        self._origins = origins
        self._attempts = Attempts()

    async def show(self, request: Request) -> Response:
        """The page, with a word on why one comes to it."""
        return _page(_ENDINGS.get(request.query_params.get("ended", ""), ""), request.query_params.get("next", "/"))

    async def take(self, request: Request) -> Response:
        """A posted key: a session under a new id, or the page again with the reason."""
        form = await _form(request)
        target = _own_path(form.get("next", "/"))
        wait = self._attempts.make(request.client.host if request.client else "")
        if wait > 0:
            return _page(f"Too many attempts. Try again in {wait:.0f} seconds.", target, 429)
        api = Api(self._config.gateway_url, form.get("key", "").strip())
        try:
            caller = caller_of(await api.get("/v1/whoami"))
        except (Failure, ValueError) as error:  # ValueError: what no header can hold
            await api.close()
            return _page(_why_not(error), target, 401 if isinstance(error, SignedOut) else 200)
        self._forget(request)
        session = self._sessions.begin(caller, api)
        return self._redirected(target, self._cookie.header(session.id, secure=self._secure(request)))

    async def leave(self, request: Request) -> Response:
        """Ends the session."""
        self._forget(request)
        return self._redirected(f"{SIGN_IN}?ended=out", self._cookie.removal(secure=self._secure(request)))

    def _forget(self, request: Request) -> None:
        session: Session | None = request.state.session
        if session is not None:
            self._sessions.end(session, "out")

    def _secure(self, request: Request) -> bool:
        return self._origins.secure(request.scope["scheme"])

    def _redirected(self, target: str, cookie: str) -> Response:
        return RedirectResponse(target, 303, {"set-cookie": cookie})


def _why_not(error: Failure | ValueError) -> str:
    known = isinstance(error, Failure) and not isinstance(error, SignedOut)
    return str(error) if known else "This key is not valid."


def _page(message: str, target: str, status: int = 200) -> Response:
    values = {"message": message, "next": _own_path(target), "version": nicegui_version}
    page = _PAGE.substitute({name: escape(value) for name, value in values.items()})
    return HTMLResponse(page, status, {"cache-control": "no-store"})


async def _form(request: Request) -> dict[str, str]:
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MOST_BODY:
            return {}
    return {name: values[0] for name, values in parse_qs(body.decode("latin-1"), max_num_fields=10).items()}


def _own_path(target: str) -> str:
    """A path of ours, never an address elsewhere."""
    fine = target.startswith("/") and not target.startswith(("//", "/\\")) and target.isprintable()
    return target if fine else "/"
