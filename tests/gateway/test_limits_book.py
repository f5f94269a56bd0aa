"""What both books of limits do, to the request and to the token."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from loragate.gateway.limits.backend import MICROSECONDS, Reply

from .books import NOON, TurnedBook, turned_book

DAY = int(NOON // (86400 * MICROSECONDS))


@pytest.fixture(params=["local", "redis"])
async def book(request: pytest.FixtureRequest) -> AsyncIterator[TurnedBook]:
    server = request.getfixturevalue("redis_server") if request.param == "redis" else None
    async with turned_book(request.param, server) as turned:
        yield turned


async def _reserve(book: TurnedBook, lease: str, tokens: int, *subjects: dict[str, Any]) -> Reply:
    return await book.ask("reserve", id=lease, tokens=tokens, subjects=list(subjects))


async def _settle(book: TurnedBook, lease: str, tokens: int, *subjects: dict[str, Any]) -> Reply:
    return await book.ask("settle", id=lease, tokens=tokens, subjects=list(subjects))


async def test_requests_per_minute(book: TurnedBook) -> None:
    """A full bucket, then one for each emptied place."""
    await book.begin()
    limited = {"name": "t", "requests": 6}
    for number in range(6):
        assert (await _reserve(book, f"l{number}", 1, limited)).verdict == "ok"
    refused = await _reserve(book, "l6", 1, limited)
    assert (refused.verdict, refused.refused[0].kind, refused.refused[0].wait) == ("no", "requests", 10e6)
    book.turn(9.99)
    assert (await _reserve(book, "l7", 1, limited)).verdict == "no"
    book.turn(0.01)
    assert (await _reserve(book, "l8", 1, limited)).verdict == "ok"
    assert (await _reserve(book, "l9", 1, limited)).verdict == "no"


async def test_all_or_nothing(book: TurnedBook) -> None:
    """What one subject refuses costs the others nothing."""
    await book.begin()
    wide, narrow = {"name": "t", "requests": 100, "tokens": 600, "concurrency": 9}, {"name": "k:1", "concurrency": 1}
    first = await _reserve(book, "a", 10, wide, narrow)
    assert first.verdict == "ok"
    refused = await _reserve(book, "b", 10, wide, narrow)
    assert [(each.subject, each.kind) for each in refused.refused] == [(1, "concurrency")]
    assert refused.states == first.states


async def test_concurrency(book: TurnedBook) -> None:
    await book.begin()
    limited = {"name": "t", "concurrency": 2}
    assert [(await _reserve(book, lease, 1, limited)).verdict for lease in "abc"] == ["ok", "ok", "no"]
    await _settle(book, "a", 1, limited)
    assert (await _reserve(book, "d", 1, limited)).verdict == "ok"


async def test_a_lease_that_nobody_renews_expires_with_its_tokens(book: TurnedBook) -> None:
    await book.begin({"name": "t", "d": DAY, "ds": 0})
    limited = {"name": "t", "concurrency": 2, "tokens": 600, "day": 1000}
    short = 30 * MICROSECONDS
    for lease in ("kept", "lost"):
        await book.ask("reserve", id=lease, tokens=100, subjects=[limited], life=short)
    book.turn(29)
    assert (await book.ask("renew", ids=["kept"], subjects=[], life=short)).verdict == "ok"
    assert (await _reserve(book, "third", 1, limited)).verdict == "no"
    book.turn(1)
    state = (await book.ask("renew", ids=[], subjects=[limited])).states[0]
    assert (state.in_flight, state.day_tokens) == (1, 100)


@pytest.mark.parametrize("used", [0, 30, 100, 250])
async def test_settled_to_the_truth(book: TurnedBook, used: int) -> None:
    await book.begin({"name": "t", "d": DAY, "ds": 0}, {"name": "t", "m": 0, "ms": 0})
    limited = {"name": "t", "tokens": 600, "day": 1000, "month": 10_000}
    await _reserve(book, "a", 100, limited)
    state = (await _settle(book, "a", used, limited)).states[0]
    assert (state.tokens - book.now, state.day_tokens, state.month_tokens) == (used * 100_000, used, used)
    again = (await _settle(book, "a", used, limited)).states[0]
    assert again == state  # said twice, counted once


async def test_what_leaked_in_vain_is_not_given_back(book: TurnedBook) -> None:
    """Otherwise one request's refund would wipe out what another has used since."""
    await book.begin()
    limited = {"name": "t", "tokens": 60}
    await _reserve(book, "a", 50, limited)
    book.turn(30)
    await _reserve(book, "b", 30, limited)
    book.turn(1)
    state = (await _settle(book, "a", 10, limited)).states[0]
    assert (state.tokens - book.now) / 1e6 == 29  # as if `a` had asked for 10 at once


async def test_tokens_are_extended_beyond_the_limit(book: TurnedBook) -> None:
    await book.begin()
    limited = {"name": "t", "tokens": 60}
    await _reserve(book, "a", 60, limited)
    await book.ask("extend", id="a", tokens=60, subjects=[limited])
    book.turn(60)
    assert (await _reserve(book, "b", 1, limited)).verdict == "no"
    await _settle(book, "a", 120, limited)
    book.turn(1)
    assert (await _reserve(book, "c", 1, limited)).verdict == "ok"


async def test_days_and_months_are_utcs(book: TurnedBook) -> None:
    await book.begin({"name": "t", "d": DAY, "ds": 0}, {"name": "t", "m": 0, "ms": 0})
    limited = {"name": "t", "day": 10, "month": 15}
    await _reserve(book, "a", 10, limited)
    await _settle(book, "a", 10, limited)
    assert (await _reserve(book, "b", 1, limited)).refused[0].kind == "day"
    book.turn(12 * 3600)
    state = (await book.ask("renew", ids=[], subjects=[limited])).states[0]
    assert (state.day, state.day_tokens, state.month_tokens) == (DAY + 1, 0, 10)
    assert [each.kind for each in (await _reserve(book, "c", 6, limited)).refused] == ["month"]
    book.turn(31 * 86400)
    assert (await _reserve(book, "d", 10, limited)).verdict == "ok"


async def test_tokens_of_yesterday_are_yesterdays(book: TurnedBook) -> None:
    await book.begin({"name": "t", "d": DAY, "ds": 0})
    limited = {"name": "t", "day": 100}
    book.turn(12 * 3600 - 1)
    await _reserve(book, "a", 50, limited)
    book.turn(2)
    assert (await _settle(book, "a", 20, limited)).states[0].day_tokens == 0


async def test_an_unknown_sum_is_asked_for(book: TurnedBook) -> None:
    """A new book, and a new limit in an old one."""
    limited = {"name": "t", "day": 100}
    assert (await _reserve(book, "a", 1, limited)).verdict == "lost"
    await book.begin()
    assert (await _reserve(book, "a", 1, limited)).verdict == "lost"
    await book.begin({"name": "t", "d": DAY, "ds": 95})
    assert [(await _reserve(book, "a", tokens, limited)).verdict for tokens in (6, 5)] == ["no", "ok"]


async def test_one_call_does_one_thing_after_the_other(book: TurnedBook) -> None:
    """What a settlement frees is there for the reservation behind it, and each reply is of its own moment."""
    await book.begin()
    limited = {"name": "t", "concurrency": 1, "requests": 60}
    reserves = [{"what": "reserve", "id": lease, "tokens": 1, "subjects": [limited]} for lease in "abc"]
    settle = {"what": "settle", "id": "a", "tokens": 1, "subjects": [limited]}
    answer = await book.ask_all(reserves[0], reserves[1], settle, reserves[2])
    assert [reply.verdict for reply in answer.replies] == ["ok", "no", "ok", "ok"]
    assert [reply.states[0].in_flight for reply in answer.replies] == [1, 1, 0, 1]
    assert [reply.states[0].requests - book.now for reply in answer.replies] == [1e6, 1e6, 1e6, 2e6]


async def test_tenants_do_not_meet(book: TurnedBook) -> None:
    limited = {"name": "t", "requests": 1}
    for tenant in ("tn_a", "tn_b"):
        book.born = ""
        await book.begin(tenant=tenant)
        taken = await book.ask("reserve", tenant, id="x", tokens=1, subjects=[limited])
        assert taken.verdict == "ok"


async def test_a_late_settlement_is_owed(book: TurnedBook) -> None:
    """Its lease expired, or was given out by a worker that could not ask."""
    await book.begin({"name": "t", "d": DAY, "ds": 0})
    limited = {"name": "t", "tokens": 600, "day": 1000}
    await book.ask("reserve", id="a", tokens=100, subjects=[limited], life=30 * MICROSECONDS)
    book.turn(31)
    assert (await _settle(book, "a", 40, limited)).states[0].day_tokens == 40
    state = (await _settle(book, "never-seen", 60, limited)).states[0]
    assert (state.day_tokens, state.in_flight, state.tokens - book.now) == (100, 0, 100 * 100_000)


async def test_a_book_that_forgot_is_told_the_later_state(book: TurnedBook) -> None:
    await book.begin({"name": "t", "d": DAY, "ds": 0})
    limited = {"name": "t", "requests": 2, "tokens": 600, "concurrency": 3, "day": 1000}
    for lease in "ab":
        state = (await _reserve(book, lease, 100, limited)).states[0]
    older, own = book.born, [{"id": "a", "tokens": 100, "subjects": [limited]}]
    await _forget(book)
    assert (await _reserve(book, "c", 1, limited)).verdict == "lost"
    seen = {"at": book.now, "r": state.requests, "t": state.tokens, "c": state.in_flight}
    handed = {"name": "t", "seen": seen, "d": state.day, "ds": state.day_tokens}
    await book.begin(handed, leases=own, fresh="second")
    now = (await book.ask("renew", ids=[], subjects=[limited])).states[0]
    assert (now.requests, now.tokens, now.day_tokens, now.in_flight) == (state.requests, state.tokens, 200, 2)
    assert [each.kind for each in (await _reserve(book, "c", 1, limited)).refused] == ["requests"]
    # The other worker hands in what it remembers: nothing of it counts twice.
    book.born = older
    mine = [{"id": "b", "tokens": 100, "subjects": [limited]}]
    await book.begin(handed, leases=mine, fresh="third")
    now = (await book.ask("renew", ids=[], subjects=[limited])).states[0]
    assert (now.tokens, now.day_tokens, now.in_flight) == (state.tokens, 200, 2)
    assert (await _settle(book, "a", 10, limited)).states[0].day_tokens == 110


async def _forget(book: TurnedBook) -> None:
    forget = getattr(book.book, "forget", None)
    if forget is not None:
        forget("tn_a")
    else:
        book.flush()


async def test_a_reservation_that_comes_after_its_settlement_takes_nothing(book: TurnedBook) -> None:
    """Its caller left while it was on the way."""
    await book.begin()
    limited = {"name": "t", "concurrency": 1, "tokens": 600}
    await _settle(book, "a", 0, limited)
    state = (await _reserve(book, "a", 100, limited)).states[0]
    assert (state.in_flight, max(0, state.tokens - book.now)) == (0, 0)
