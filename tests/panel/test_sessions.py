"""Sessions, cookies, sign-in attempts and origins, without a browser."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from loragate.panel.api import Api, Json, SignedOut
from loragate.panel.caller import Caller
from loragate.panel.config import PanelConfig
from loragate.panel.cookie import SessionCookie
from loragate.panel.failure_delays import FailureDelays
from loragate.panel.origins import Origins
from loragate.panel.sessions import Session, Sessions

ACME = Caller("tn_1", "acme", "k1", frozenset({"all"}))


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def sessions(clock: Clock) -> AsyncIterator[Sessions]:
    config = PanelConfig("http://127.0.0.1:9", idle_seconds=60, session_seconds=300, max_sessions=3)
    made = Sessions(config, clock)
    yield made
    await made.close()


def begin(sessions: Sessions) -> Session:
    return sessions.begin(ACME, Api("http://127.0.0.1:9", "lg-x-y"))


async def test_an_idle_session_ends_and_notifies_its_pages(sessions: Sessions, clock: Clock) -> None:
    session = begin(sessions)
    reported: list[str] = []
    session.pages["a"] = reported.append
    clock.now += 59
    assert sessions.find(session.id) is session
    sessions.record_activity(session)
    clock.now += 59
    assert sessions.find(session.id) is session
    clock.now += 2
    assert sessions.find(session.id) is None
    assert reported == ["idle"]


async def test_a_session_is_not_idle_during_a_download(sessions: Sessions, clock: Clock) -> None:
    session = sessions.begin(ACME, Answers(None))
    session.downloads = 1
    for _ in range(2):
        clock.now += 61
        await sessions._check(session)
    session.downloads = 0
    clock.now += 59
    assert sessions.find(session.id) is session
    clock.now += 2
    assert sessions.find(session.id) is None


async def test_a_download_ends_with_its_key(sessions: Sessions) -> None:
    session = sessions.begin(ACME, Answers(SignedOut("revoked")))
    session.downloads = 1
    await sessions._check(session)
    assert sessions.find(session.id) is None


async def test_no_session_lasts_forever(sessions: Sessions, clock: Clock) -> None:
    session = begin(sessions)
    for _ in range(6):
        clock.now += 50
        sessions.record_activity(session)
    assert sessions.find(session.id) is session
    clock.now += 1
    sessions.record_activity(session)
    assert sessions.find(session.id) is None


class Answers(Api):
    """Gives this response to a check of its key."""

    def __init__(self, raises: Exception | None) -> None:
        super().__init__("http://127.0.0.1:9", "lg-x-y")
        self._raises = raises
        self.asked = 0

    async def get(self, url: str, **params: Any) -> Json:
        self.asked += 1
        if self._raises is not None:
            raise self._raises
        return {}


async def test_one_failing_check_does_not_stop_the_others(clock: Clock) -> None:
    sessions = Sessions(PanelConfig("http://127.0.0.1:9", recheck_seconds=0.01), clock)
    odd, fine = Answers(RuntimeError("odd")), Answers(None)
    for api in (odd, fine):
        sessions.begin(ACME, api).pages["a"] = lambda why: None
    ended, reported = sessions.begin(ACME, Answers(SignedOut("no more"))), asyncio.Event()
    ended.pages |= {"gone": lambda why: 1 / 0, "there": lambda why: reported.set()}  # type: ignore[dict-item]
    checking = asyncio.create_task(sessions.run_check_loop())
    async with asyncio.timeout(120):
        await reported.wait()
        while min(odd.asked, fine.asked) < 3:
            await asyncio.sleep(0.01)
    assert not checking.done()
    assert sessions.find(ended.id) is None
    checking.cancel()
    await sessions.close()


async def test_the_table_is_bounded_and_the_most_idle_session_is_removed(sessions: Sessions, clock: Clock) -> None:
    opened = []
    for _ in range(4):
        clock.now += 1
        opened.append(begin(sessions))
    assert [sessions.find(each.id) is not None for each in opened] == [False, True, True, True]
    assert len({each.id for each in opened}) == 4


def test_a_cookie_is_valid_in_its_own_process_only() -> None:
    cookie, other = SessionCookie("here 8001"), SessionCookie("here 8001")
    header = cookie.header("an-id", secure=True)
    assert header.endswith("; Path=/; HttpOnly; SameSite=Strict; Secure")
    value = cookie.sent(header.partition(";")[0])
    assert value is not None
    assert cookie.session_id(value) == "an-id"
    assert other.session_id(value) is None
    assert cookie.session_id(value[:-1] + ("0" if value[-1] != "0" else "1")) is None
    assert cookie.session_id("ünïcode") is None
    names = [each.header("", secure=False).partition("=")[0] for each in (cookie, other, SessionCookie("here 8002"))]
    assert names[0] == names[1] != names[2]


def test_over_tls_no_other_host_can_set_the_cookie() -> None:
    cookie = SessionCookie("here 8001", always_secure=True)
    plain, secure = (cookie.header("an-id", secure=tls).partition(";")[0] for tls in (False, True))
    assert secure.startswith("__Host-loragate-panel-")
    assert cookie.sent(f"{plain}; {secure}") is not None
    assert cookie.sent(plain) is None


def test_failures_delay_responses_and_expire(clock: Clock) -> None:
    failures = FailureDelays(free=2, max_delay=1.0, seconds=60, now=clock)
    assert [failures.record("192.0.2.1") for _ in range(8)] == [0, 0, 0.25, 0.5, 0.75, 1.0, 1.0, 1.0]
    assert failures.record("192.0.2.2") == 0
    clock.now += 61
    assert failures.record("192.0.2.1") == 0


def test_an_ipv6_network_is_one_address(clock: Clock) -> None:
    failures = FailureDelays(free=1, now=clock)
    assert [failures.record(f"2001:db8::{number}") for number in range(3)] == [0, 0.25, 0.5]
    assert failures.record("2001:db8:0:1::1") == 0


def test_the_table_of_failures_is_bounded(clock: Clock) -> None:
    failures = FailureDelays(free=1, max_addresses=2, now=clock)
    for address in ("192.0.2.1", "192.0.2.2", "192.0.2.3"):
        failures.record(address)
    assert [failures.record("192.0.2.3"), failures.record("192.0.2.1")] == [0.25, 0]


async def test_delayed_responses_are_few(clock: Clock) -> None:
    """A further one is not delayed at all: each keeps a connection."""
    failures = FailureDelays(free=0, max_delayed=1, now=clock)
    waiting = asyncio.create_task(failures.delay("192.0.2.1"))
    await asyncio.sleep(0)
    begun = asyncio.get_running_loop().time()
    for _ in range(100):
        await failures.delay("192.0.2.2")
    assert asyncio.get_running_loop().time() == pytest.approx(begun, abs=0.2)
    waiting.cancel()


@pytest.mark.parametrize(
    ("public", "origin", "own"),
    [
        (None, "http://panel:8001", True),
        (None, "https://panel:8001", False),
        (None, "http://elsewhere", False),
        (None, "null", False),
        (None, "", False),
        ("https://panel.example/x", "https://panel.example", True),
        ("https://panel.example", "https://panel.example.evil", False),
    ],
)
def test_the_origin_of_a_page(public: str | None, origin: str, own: bool) -> None:
    headers = {"host": "panel:8001", "origin": origin}
    assert Origins(public).own("http", headers) is own
    assert Origins(public).secure("http") is (public is not None)
