"""Work ends with its client or with the server, raises the reason, and leaves nothing behind."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from starlette.requests import ClientDisconnect
from starlette.types import Message

from loragate.gateway.errors import ShuttingDown
from loragate.gateway.http.disconnect import supervise, until_deadline
from loragate.gateway.http.lifecycle import Lifecycle

Receive = Callable[[], Awaitable[Message]]


class Client:
    """Disconnects on request."""

    def __init__(self) -> None:
        self.leaves = asyncio.Event()

    async def receive(self) -> Message:
        await self.leaves.wait()
        return {"type": "http.disconnect"}


async def test_the_result() -> None:
    async def work() -> int:
        await asyncio.sleep(0)
        return 7

    client, lifecycle = Client(), Lifecycle()
    assert await supervise(work(), client.receive, lifecycle) == 7
    await asyncio.sleep(0)
    assert len(asyncio.all_tasks()) == 1, "the client is not watched any more"
    lifecycle.expire()
    await asyncio.sleep(0)


async def test_an_error_of_the_work_is_raised() -> None:
    async def work() -> None:
        raise KeyError("its own")

    with pytest.raises(KeyError, match="its own"):
        await supervise(work(), Client().receive, Lifecycle())


@pytest.mark.parametrize("reason", [ClientDisconnect, ShuttingDown])
async def test_a_reason_to_end(reason: type[Exception]) -> None:
    """The work is cancelled, and has cleaned up when the reason is raised."""
    client, lifecycle, cleaned_up, begun = Client(), Lifecycle(), asyncio.Event(), asyncio.Event()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned_up.set()

    async def ends() -> None:
        with pytest.raises(reason):
            await supervise(work(), client.receive, lifecycle)
        assert cleaned_up.is_set()
        await asyncio.sleep(0)  # and this task continues as if nothing had happened

    running = asyncio.create_task(ends())
    await begun.wait()
    client.leaves.set() if reason is ClientDisconnect else lifecycle.expire()
    await running


async def test_after_the_deadline_no_work_begins() -> None:
    lifecycle = Lifecycle()
    lifecycle.expire()

    async def work() -> None:
        await asyncio.Event().wait()

    with pytest.raises(ShuttingDown):
        await until_deadline(work(), lifecycle)


async def test_a_client_that_leaves_as_the_work_ends() -> None:
    """The result counts, and no cancellation arrives late."""
    client, lifecycle = Client(), Lifecycle()
    step = asyncio.Event()

    async def work() -> int:
        await step.wait()
        lifecycle.expire()  # cancels us, and we do not wait any more
        return 7

    running = asyncio.create_task(supervise(work(), client.receive, lifecycle))
    await asyncio.sleep(0)
    step.set()
    assert await running == 7


async def test_an_outside_cancellation_passes_through() -> None:
    begun = asyncio.Event()

    async def work() -> None:
        begun.set()
        await asyncio.Event().wait()

    running = asyncio.create_task(supervise(work(), Client().receive, Lifecycle()))
    await begun.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
