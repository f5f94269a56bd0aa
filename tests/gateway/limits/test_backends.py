"""Both limit backends, exact to the request and to the token."""

from collections.abc import AsyncIterator

import pytest

from loragate.gateway.limits.backend import MICROSECONDS
from loragate.gateway.limits.operations import LeaseRecord, ObservedBuckets, Reserve, Settle
from tests.gateway.limit_backends import LIFETIME, NOON, BackendOnTestClock, backend_on_test_clock, limited, usage

DAY = int(NOON // (86400 * MICROSECONDS))


@pytest.fixture(params=["memory", "redis"])
async def backend(request: pytest.FixtureRequest) -> AsyncIterator[BackendOnTestClock]:
    server = request.getfixturevalue("redis_server") if request.param == "redis" else None
    async with backend_on_test_clock(request.param, server) as turned:
        yield turned


async def test_requests_per_minute(backend: BackendOnTestClock) -> None:
    """A full bucket, then one request for each token that refills."""
    await backend.restore()
    subject = limited("t", requests=6)
    for number in range(6):
        assert (await backend.reserve(f"l{number}", 1, subject)).verdict == "ok"
    result = await backend.reserve("l6", 1, subject)
    assert (result.verdict, result.exceeded[0].kind, result.exceeded[0].wait) == ("no", "requests", 10e6)
    backend.advance(9.99)
    assert (await backend.reserve("l7", 1, subject)).verdict == "no"
    backend.advance(0.01)
    assert (await backend.reserve("l8", 1, subject)).verdict == "ok"
    assert (await backend.reserve("l9", 1, subject)).verdict == "no"


async def test_all_or_nothing(backend: BackendOnTestClock) -> None:
    """A rejection by one subject costs the others nothing."""
    await backend.restore()
    wide, narrow = limited("t", requests=100, tokens=600, concurrency=9), limited("k:1", concurrency=1)
    first = await backend.reserve("a", 10, wide, narrow)
    assert first.verdict == "ok"
    result = await backend.reserve("b", 10, wide, narrow)
    assert [(each.subject, each.kind) for each in result.exceeded] == [(1, "concurrency")]
    assert result.states == first.states


async def test_concurrency(backend: BackendOnTestClock) -> None:
    await backend.restore()
    subject = limited("t", concurrency=2)
    assert [(await backend.reserve(lease, 1, subject)).verdict for lease in "abc"] == ["ok", "ok", "no"]
    await backend.settle("a", 1, subject)
    assert (await backend.reserve("d", 1, subject)).verdict == "ok"


async def test_a_lease_that_is_not_renewed_expires_with_its_tokens(backend: BackendOnTestClock) -> None:
    await backend.restore(usage("t", day=(DAY, 0)))
    subject = limited("t", concurrency=2, tokens=600, day=1000)
    short = 30 * MICROSECONDS
    for lease in ("kept", "lost"):
        await backend.reserve(lease, 100, subject, lifetime=short)
    backend.advance(29)
    assert (await backend.renew(["kept"], lifetime=short)).verdict == "ok"
    assert (await backend.reserve("third", 1, subject)).verdict == "no"
    backend.advance(1)
    state = (await backend.renew([], subject)).states[0]
    assert (state.in_flight, state.day_tokens) == (1, 100)


@pytest.mark.parametrize("used", [0, 30, 100, 250])
async def test_settlement_charges_the_actual_tokens(backend: BackendOnTestClock, used: int) -> None:
    await backend.restore(usage("t", day=(DAY, 0)), usage("t", month=(0, 0)))
    subject = limited("t", tokens=600, day=1000, month=10_000)
    await backend.reserve("a", 100, subject)
    state = (await backend.settle("a", used, subject)).states[0]
    assert (state.tokens - backend.now, state.day_tokens, state.month_tokens) == (used * 100_000, used, used)
    again = (await backend.settle("a", used, subject)).states[0]
    assert again == state  # settled twice, counted once


async def test_what_leaked_meanwhile_is_not_refunded(backend: BackendOnTestClock) -> None:
    """Otherwise one request's refund would cancel what another has used since."""
    await backend.restore()
    subject = limited("t", tokens=60)
    await backend.reserve("a", 50, subject)
    backend.advance(30)
    await backend.reserve("b", 30, subject)
    backend.advance(1)
    state = (await backend.settle("a", 10, subject)).states[0]
    assert (state.tokens - backend.now) / 1e6 == 29  # as if `a` had requested 10 at once


async def test_a_refund_lowers_what_later_refunds_go_by(backend: BackendOnTestClock) -> None:
    """Without the first two requests the bucket would hold the last one's token, which came when it was empty."""
    await backend.restore()
    subject = limited("t", tokens=600)
    await backend.reserve("large", 10, subject)
    await backend.reserve("small", 1, subject)
    backend.advance(1)
    await backend.reserve("last", 1, subject)
    await backend.settle("last", 1, subject)
    await backend.settle("small", 0, subject)
    result = await backend.settle("large", 0, subject)
    assert result.states[0].tokens - backend.now == pytest.approx(0.1 * MICROSECONDS)


async def test_a_refund_makes_an_earlier_low_irrelevant(backend: BackendOnTestClock) -> None:
    """After the second refund the bucket was lowest after both requests had begun, so the first gets no more back."""
    await backend.restore()
    subject = limited("t", tokens=600)
    await backend.reserve("first", 20, subject)
    backend.advance(1)
    await backend.reserve("second", 30, subject)
    backend.advance(3)
    await backend.reserve("last", 5, subject)
    await backend.settle("second", 0, subject)
    result = await backend.settle("first", 0, subject)
    assert result.states[0].tokens - backend.now == pytest.approx(0.5 * MICROSECONDS)


async def test_tokens_are_extended_beyond_the_limit(backend: BackendOnTestClock) -> None:
    await backend.restore()
    subject = limited("t", tokens=60)
    await backend.reserve("a", 60, subject)
    await backend.extend("a", 60, subject)
    backend.advance(60)
    assert (await backend.reserve("b", 1, subject)).verdict == "no"
    await backend.settle("a", 120, subject)
    backend.advance(1)
    assert (await backend.reserve("c", 1, subject)).verdict == "ok"


async def test_days_and_months_are_utc(backend: BackendOnTestClock) -> None:
    await backend.restore(usage("t", day=(DAY, 0)), usage("t", month=(0, 0)))
    subject = limited("t", day=10, month=15)
    await backend.reserve("a", 10, subject)
    await backend.settle("a", 10, subject)
    assert (await backend.reserve("b", 1, subject)).exceeded[0].kind == "day"
    backend.advance(12 * 3600)
    state = (await backend.renew([], subject)).states[0]
    assert (state.day, state.day_tokens, state.month_tokens) == (DAY + 1, 0, 10)
    assert [each.kind for each in (await backend.reserve("c", 6, subject)).exceeded] == ["month"]
    backend.advance(31 * 86400)
    assert (await backend.reserve("d", 10, subject)).verdict == "ok"


async def test_tokens_of_yesterday_count_for_yesterday(backend: BackendOnTestClock) -> None:
    await backend.restore(usage("t", day=(DAY, 0)))
    subject = limited("t", day=100)
    backend.advance(12 * 3600 - 1)
    await backend.reserve("a", 50, subject)
    backend.advance(2)
    assert (await backend.settle("a", 20, subject)).states[0].day_tokens == 0


async def test_an_unknown_total_is_requested(backend: BackendOnTestClock) -> None:
    """In a new backend, and for a new limit in an existing one."""
    subject = limited("t", day=100)
    assert (await backend.reserve("a", 1, subject)).verdict == "lost"
    await backend.restore()
    assert (await backend.reserve("a", 1, subject)).verdict == "lost"
    await backend.restore(usage("t", day=(DAY, 95)))
    assert [(await backend.reserve("a", tokens, subject)).verdict for tokens in (6, 5)] == ["no", "ok"]


async def test_commands_of_one_call_are_executed_in_order(backend: BackendOnTestClock) -> None:
    """What a settlement frees is available to the next reservation, and each reply reflects its own moment."""
    await backend.restore()
    subject = limited("t", concurrency=1, requests=60)
    reserves = [Reserve(lease, 1, [subject], LIFETIME) for lease in "abc"]
    settle = Settle("a", 1, [subject])
    response = await backend.execute_all(reserves[0], reserves[1], settle, reserves[2])
    assert [result.verdict for result in response.results] == ["ok", "no", "ok", "ok"]
    assert [result.states[0].in_flight for result in response.results] == [1, 1, 0, 1]
    assert [result.states[0].requests - backend.now for result in response.results] == [1e6, 1e6, 1e6, 2e6]


async def test_tenants_do_not_share_limits(backend: BackendOnTestClock) -> None:
    subject = limited("t", requests=1)
    for tenant in ("tn_a", "tn_b"):
        backend.incarnation = ""
        await backend.restore(tenant=tenant)
        taken = await backend.reserve("x", 1, subject, tenant=tenant)
        assert taken.verdict == "ok"


async def test_a_late_settlement_is_still_charged(backend: BackendOnTestClock) -> None:
    """Its lease expired, or was granted by a worker that could not reach the backend."""
    await backend.restore(usage("t", day=(DAY, 0)))
    subject = limited("t", tokens=600, day=1000)
    await backend.reserve("a", 100, subject, lifetime=30 * MICROSECONDS)
    backend.advance(31)
    assert (await backend.settle("a", 40, subject)).states[0].day_tokens == 40
    state = (await backend.settle("never-seen", 60, subject)).states[0]
    assert (state.day_tokens, state.in_flight, state.tokens - backend.now) == (100, 0, 100 * 100_000)


async def test_a_backend_that_lost_its_state_takes_over_the_later_state(backend: BackendOnTestClock) -> None:
    await backend.restore(usage("t", day=(DAY, 0)))
    subject = limited("t", requests=2, tokens=600, concurrency=3, day=1000)
    for lease in "ab":
        state = (await backend.reserve(lease, 100, subject)).states[0]
    older, own = backend.incarnation, [LeaseRecord("a", 100, [subject])]
    backend.lose_state()
    assert (await backend.reserve("c", 1, subject)).verdict == "lost"
    seen = ObservedBuckets(backend.now, state.requests, state.tokens, state.in_flight)
    handed = usage("t", buckets=seen, day=(state.day, state.day_tokens))
    await backend.restore(handed, leases=own, fresh="second")
    now = (await backend.renew([], subject)).states[0]
    assert (now.requests, now.tokens, now.day_tokens, now.in_flight) == (state.requests, state.tokens, 200, 2)
    assert [each.kind for each in (await backend.reserve("c", 1, subject)).exceeded] == ["requests"]
    # The other worker sends the state that it knows: nothing of it counts twice.
    backend.incarnation = older
    mine = [LeaseRecord("b", 100, [subject])]
    await backend.restore(handed, leases=mine, fresh="third")
    now = (await backend.renew([], subject)).states[0]
    assert (now.tokens, now.day_tokens, now.in_flight) == (state.tokens, 200, 2)
    assert (await backend.settle("a", 10, subject)).states[0].day_tokens == 110


async def test_a_reservation_after_its_settlement_takes_nothing(backend: BackendOnTestClock) -> None:
    """Its caller disconnected while it was in flight."""
    await backend.restore()
    subject = limited("t", concurrency=1, tokens=600)
    await backend.settle("a", 0, subject)
    state = (await backend.reserve("a", 100, subject)).states[0]
    assert (state.in_flight, max(0, state.tokens - backend.now)) == (0, 0)


async def test_entries_that_nothing_uses_are_dropped(backend: BackendOnTestClock) -> None:
    """A tenant's keys and adapters come and go; a state for each of them for ever would fill the memory."""
    await backend.restore()
    held = limited("k:held", concurrency=2)
    await backend.reserve("held", 1, held, lifetime=5 * LIFETIME)
    for number in range(200):
        key = limited(f"k:{number}", requests=60, tokens=600)
        await backend.reserve(f"l{number}", 10, key)
        await backend.settle(f"l{number}", 10, key)
    assert backend.entries() == 201
    backend.advance(3700)
    for number in range(300):
        key = limited(f"k:new{number}", requests=60)
        await backend.reserve(f"m{number}", 1, key)
        await backend.settle(f"m{number}", 1, key)
    assert backend.entries() <= 301 + 20
    assert (await backend.reserve("second", 1, held)).states[0].in_flight == 2


async def test_a_dropped_total_is_asked_for_again(backend: BackendOnTestClock) -> None:
    """It is in the ledger; a day that began at zero again would be granted twice."""
    key = limited("k:1", day=1000)
    await backend.restore(usage("k:1", day=(DAY, 0)))
    await backend.reserve("l", 900, key)
    await backend.settle("l", 900, key)
    for number in range(70):
        await backend.reserve(f"held{number}", 1, limited(f"k:held{number}", requests=60), lifetime=5 * LIFETIME)
    backend.advance(3700)
    for number in range(300):
        other = limited(f"k:new{number}", requests=60)
        await backend.reserve(f"new{number}", 1, other)
        await backend.settle(f"new{number}", 1, other)
    assert (await backend.reserve("next", 200, key)).verdict == "lost"
