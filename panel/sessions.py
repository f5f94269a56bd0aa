"""Who is signed in: a table in this process' memory. Keys are nowhere else, and a restart forgets them."""

import asyncio
import logging
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from loragate.panel.api import Api
from loragate.panel.caller import Caller
from loragate.panel.config import PanelConfig
from loragate.panel.failure import Failure, SignedOut

log = logging.getLogger(__name__)


@dataclass(eq=False)
class Session:
    """One sign-in. `pages` are those that are open in browsers, by NiceGUI's ids, each with what ends it."""

    id: str
    caller: Caller
    api: Api
    started: float
    last_act: float
    pages: dict[str, Callable[[str], None]] = field(default_factory=dict)


class Sessions:
    """Found by an id that only the browser's cookie holds."""

    def __init__(self, config: PanelConfig, now: Callable[[], float] = time.monotonic) -> None:
        self._config = config
        self._now = now
        self._open: dict[str, Session] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def begin(self, caller: Caller, api: Api) -> Session:
        """A new one, under a new id."""
        if len(self._open) >= self._config.most_sessions:
            self.end(min(self._open.values(), key=lambda session: session.last_act), "idle")
        now = self._now()
        session = Session(secrets.token_urlsafe(32), caller, api, now, now)
        self._open[session.id] = session
        return session

    def find(self, session_id: str) -> Session | None:
        """None for one that is over."""
        session = self._open.get(session_id)
        if session is not None and self._is_over(session):
            self.end(session, "idle")
            return None
        return session

    def act(self, session: Session) -> None:
        """Its user did something."""
        session.last_act = self._now()

    def end(self, session: Session, why: str) -> None:
        """Its pages are told; nothing can be asked with its key any more."""
        if self._open.pop(session.id, None) is None:
            return
        for end_page in list(session.pages.values()):
            try:
                end_page(why)
            except Exception:
                log.exception("a page cannot be told that its session is over")
        closing = asyncio.ensure_future(session.api.close())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    async def keep_checking(self) -> None:
        """Ends those that are over, and those whose key is good for nothing any more."""
        while True:
            await asyncio.sleep(self._config.recheck_seconds)
            await asyncio.gather(*map(self._check, list(self._open.values())))

    async def close(self) -> None:
        """Forgets all of them."""
        await asyncio.gather(*(session.api.close() for session in self._open.values()), *self._closing)
        self._open.clear()

    async def _check(self, session: Session) -> None:
        """Whatever comes of one session, the others are checked, and all of them again."""
        try:
            if self._is_over(session):
                self.end(session, "idle")
            elif session.pages:
                await session.api.get("/v1/whoami")
        except SignedOut:
            self.end(session, "key")
        except Failure as failure:
            log.debug("whether a key is still good cannot be asked: %s", failure.message)
        except Exception:
            log.exception("a session cannot be checked")

    def _is_over(self, session: Session) -> bool:
        now = self._now()
        idle = now - session.last_act > self._config.idle_seconds
        return idle or now - session.started > self._config.session_seconds
