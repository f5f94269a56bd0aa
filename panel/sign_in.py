"""Signing in and out with plain HTML pages: a key is posted once and never sent back."""

from html import escape
from pathlib import Path
from string import Template
from urllib.parse import parse_qs

from nicegui import __version__ as nicegui_version
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from loragate.panel.api import Api, ApiError, SignedOut
from loragate.panel.caller import caller_from
from loragate.panel.config import PanelConfig
from loragate.panel.cookie import SessionCookie
from loragate.panel.failure_delays import FailureDelays
from loragate.panel.guard import SIGN_IN
from loragate.panel.origins import Origins
from loragate.panel.sessions import Session, Sessions

_PAGE = Template((Path(__file__).parent / "static" / "sign_in.html").read_text(encoding="utf-8"))
_MAX_BODY_BYTES = 16 << 10
_ENDINGS = {
    "over": "Your session has ended. Sign in again to continue.",
    "idle": "Your session has ended due to inactivity. Sign in again to continue.",
    "key": "This key is no longer valid. Sign in with another one.",
    "out": "You have signed out.",
}


class SignIn:
    """The routes that start and end sessions."""

    def __init__(self, config: PanelConfig, sessions: Sessions, cookie: SessionCookie, origins: Origins) -> None:
        self._config = config
        self._sessions = sessions
        self._cookie = cookie
        self._origins = origins
        self._failures = FailureDelays()

    async def show(self, request: Request) -> Response:
        """Return the sign-in page, with the reason why the last session ended."""
        return _page(_ENDINGS.get(request.query_params.get("ended", ""), ""), request.query_params.get("next", "/"))

    async def submit(self, request: Request) -> Response:
        """Handle a posted key: start a session with a new id, or return the page with the reason."""
        form = await _form(request)
        target = _own_path(form.get("next", "/"))
        api = Api(self._config.gateway_url, form.get("key", "").strip(), self._config.gateway_tls)
        try:
            caller = caller_from(await api.get("/v1/whoami"))
        except (ApiError, ValueError) as error:  # ValueError: characters that no header can contain
            await api.close()
            if isinstance(error, SignedOut | ValueError):  # the gateway's own failures do not count against the client
                await self._failures.delay(request.client.host if request.client else "")
            return _page(_why_not(error), target, 401 if isinstance(error, SignedOut) else 200)
        self._end_session(request)
        session = self._sessions.begin(caller, api)
        return self._redirected(target, self._cookie.header(session.id, secure=self._secure(request)))

    async def sign_out(self, request: Request) -> Response:
        """End the session."""
        self._end_session(request)
        return self._redirected(f"{SIGN_IN}?ended=out", self._cookie.removal(secure=self._secure(request)))

    def _end_session(self, request: Request) -> None:
        session: Session | None = request.state.session
        if session is not None:
            self._sessions.end(session, "out")

    def _secure(self, request: Request) -> bool:
        return self._origins.secure(request.scope["scheme"])

    def _redirected(self, target: str, cookie: str) -> Response:
        return RedirectResponse(target, 303, {"set-cookie": cookie})


def _why_not(error: ApiError | ValueError) -> str:
    known = isinstance(error, ApiError) and not isinstance(error, SignedOut)
    return str(error) if known else "This key is not valid."


def _page(message: str, target: str, status: int = 200) -> Response:
    values = {"message": message, "next": _own_path(target), "version": nicegui_version}
    page = _PAGE.substitute({name: escape(value) for name, value in values.items()})
    return HTMLResponse(page, status, {"cache-control": "no-store"})


async def _form(request: Request) -> dict[str, str]:
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MAX_BODY_BYTES:
            return {}
    return {name: values[0] for name, values in parse_qs(body.decode("latin-1"), max_num_fields=10).items()}


def _own_path(target: str) -> str:
    """Return the target if it is a path of the panel, never another site's address."""
    fine = target.startswith("/") and not target.startswith(("//", "/\\")) and target.isprintable()
    return target if fine else "/"
