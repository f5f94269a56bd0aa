"""Waiting with a time limit."""

import asyncio

from loragate.gateway.http.lifecycle import Lifecycle
from loragate.gateway.resilience.timeouts import wait_for_event


async def test_a_request_that_begins_right_after_the_last_one_does_not_end_a_drain() -> None:
    lifecycle = Lifecycle()
    with lifecycle.request():
        idle = asyncio.create_task(lifecycle.idle(60))
        await asyncio.sleep(0)
    with lifecycle.request():  # before the waiting task runs
        for _ in range(5):
            await asyncio.sleep(0)
        assert not idle.done()
    assert await idle


async def test_an_event_that_stays_clear_ends_the_wait_at_its_limit() -> None:
    assert not await wait_for_event(asyncio.Event(), 0.01)
