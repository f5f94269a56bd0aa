"""The same notices within a process and, through Redis, between processes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from redis_server import RedisServer

from loragate.adapter_store.notices.notices import LocalNotices, Notices
from loragate.adapter_store.notices.redis import RedisNotices, redis_notices
from loragate.adapter_store.store import Store


class Listener:
    """Records the notices it receives."""

    def __init__(self, notices: Notices) -> None:
        self._received: asyncio.Queue[str | None] = asyncio.Queue()
        notices.subscribe(self._received.put_nowait)

    async def next(self) -> str | None:
        async with asyncio.timeout(30):
            return await self._received.get()

    def nothing_more(self) -> bool:
        return self._received.empty()


@asynccontextmanager
async def connected(url: str, prefix: str = "loragate") -> AsyncIterator[RedisNotices]:
    async with redis_notices(url, prefix) as notices:
        ear = Listener(notices)
        assert await ear.next() is None  # subscribed; earlier notices were missed
        yield notices


@pytest.fixture(params=["local", "redis"])
async def two(request: pytest.FixtureRequest) -> AsyncIterator[tuple[Notices, Notices]]:
    """The notices of two processes, or of one process twice."""
    if request.param == "local":
        only = LocalNotices()
        yield only, only
        return
    server: RedisServer = request.getfixturevalue("redis_server")
    async with connected(server.url) as here, connected(server.url) as elsewhere:
        yield here, elsewhere


async def test_all_processes_receive_what_one_announces(two: tuple[Notices, Notices]) -> None:
    here, elsewhere = two
    ears = [Listener(here), Listener(elsewhere)]
    for tenant_id in ("tn_a", "tn_b"):
        await here.announce(tenant_id)
        for ear in ears:
            while (received := await ear.next()) != tenant_id:
                assert received == "tn_a"  # one's own comes back through Redis


async def test_the_store_announces_what_was_committed(two: tuple[Notices, Notices], database_url: str) -> None:
    here, elsewhere = two
    store = await Store.open(database_url, "memory://", b"k" * 32, here)
    ear = Listener(elsewhere)
    async with store.admin(write=True) as admin:
        tenant = await admin.tenants.create("acme")
        assert ear.nothing_more()
    assert await ear.next() == tenant.id
    await store.close()


async def test_a_reconnected_process_is_notified(redis_server: RedisServer) -> None:
    async with connected(redis_server.url) as here, connected(redis_server.url) as elsewhere:
        redis_server.stop()
        own, ear = Listener(here), Listener(elsewhere)
        await here.announce("tn_a")
        assert await own.next() == "tn_a", "a process hears itself without Redis"
        redis_server.start()
        assert await ear.next() is None, "and it may have missed something"


async def test_notices_of_another_installation_are_not_received(redis_server: RedisServer) -> None:
    async with connected(redis_server.url) as here, connected(redis_server.url, "staging") as other:
        ear = Listener(here)
        await other.announce("tn_other")
        await here.announce("tn_own")
        assert [await ear.next(), await ear.next()] == ["tn_own", "tn_own"], "at once, and through Redis"


async def test_it_ends_whenever_it_is_cancelled(redis_server: RedisServer) -> None:
    """Also while it sends, connects or reads."""

    async def listening_for(turns: int) -> None:
        async with redis_notices(redis_server.url):
            for _ in range(turns):
                await asyncio.sleep(0)

    for turns in range(100):
        _, running = await asyncio.wait([asyncio.create_task(listening_for(turns))], timeout=30)
        assert not running, f"closed after {turns} turns of the loop"
