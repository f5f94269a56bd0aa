"""Sessions, held only in this process' memory. Keys are stored nowhere else, and a restart ends all sessions."""

import asyncio
import logging
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from loragate.panel.api import Api, ApiError, SignedOut
from loragate.panel.caller import Caller
from loragate.panel.config import PanelConfig

log = logging.getLogger(__name__)


@dataclass(eq=False)
class Session:
    """One sign-in. `pages` are those open in browsers: NiceGUI's ids, each with a function that ends the page.

    A session is not idle while `downloads` run.
    """

    id: str
    caller: Caller
    api: Api
    started: float
    last_activity: float
    pages: dict[str, Callable[[str], None]] = field(default_factory=dict)
    downloads: int = 0


class Sessions:
    """All open sessions, by an id that only the browser's cookie contains."""

    def __init__(self, config: PanelConfig, now: Callable[[], float] = time.monotonic) -> None:
        self._config = config
        self._now = now
        self._open: dict[str, Session] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def begin(self, caller: Caller, api: Api) -> Session:
        """Open a session with a new id. Above the maximum, the one idle for longest is ended."""
        if len(self._open) >= self._config.max_sessions:
            self.end(min(self._open.values(), key=lambda session: session.last_activity), "idle")
        now = self._now()
        session = Session(secrets.token_urlsafe(32), caller, api, now, now)
        self._open[session.id] = session
        return session

    def find(self, session_id: str) -> Session | None:
        """Return the session with this id, or None if it has ended."""
        session = self._open.get(session_id)
        if session is not None and self._has_expired(session):
            self.end(session, "idle")
            return None
        return session

    def record_activity(self, session: Session) -> None:
        """Record an action of the session's user."""
        session.last_activity = self._now()

    def end(self, session: Session, why: str) -> None:
        """End the session: notify its pages and close its connections to the API."""
        if self._open.pop(session.id, None) is None:
            return
        for end_page in list(session.pages.values()):
            try:
                end_page(why)
            except Exception:
                log.exception("a page could not be notified that its session has ended")
        closing = asyncio.ensure_future(session.api.close())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    async def run_check_loop(self) -> None:
        """End sessions that have expired, and those whose key is no longer valid."""
        while True:
            await asyncio.sleep(self._config.recheck_seconds)
            await asyncio.gather(*map(self._check, list(self._open.values())))

    async def close(self) -> None:
        """Close all sessions."""
        await asyncio.gather(*(session.api.close() for session in self._open.values()), *self._closing)
        self._open.clear()

    async def _check(self, session: Session) -> None:
        """Check one session. No exception leaves this method, so that the loop continues with the others."""
        try:
            if session.downloads:
                self.record_activity(session)
            if self._has_expired(session):
                self.end(session, "idle")
            elif session.pages or session.downloads:
                await session.api.get("/v1/whoami")
        except SignedOut:
            self.end(session, "key")
        except ApiError as failure:
            log.debug("whether a key is still valid could not be checked: %s", failure.message)
        except Exception:
            log.exception("a session could not be checked")

    def _has_expired(self, session: Session) -> bool:
        now = self._now()
        idle = now - session.last_activity > self._config.idle_seconds
        return idle or now - session.started > self._config.session_seconds
