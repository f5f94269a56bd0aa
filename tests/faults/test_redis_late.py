"""A Redis that responds too late, through a proxy that delays each response."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
from redis_server import RedisServer

from loragate.gateway.resilience.redis import RedisLink, RedisUnavailable

ECHO = "return ARGV[1]"


class LateRedis:
    """Responds as Redis does, after `seconds`."""

    def __init__(self, socket_path: str) -> None:
        self.seconds = 0.0
        self.port = 0
        self._path = socket_path
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behind, ahead = await asyncio.open_unix_connection(self._path)
        for task in (self._pump(reader, ahead, late=False), self._pump(behind, writer, late=True)):
            made = asyncio.create_task(task)
            self._tasks.add(made)
            made.add_done_callback(self._tasks.discard)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, late: bool) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                if late:
                    await asyncio.sleep(self.seconds)
                writer.write(data)
                await writer.drain()
        writer.close()


@pytest.fixture
async def late(redis_server: RedisServer) -> AsyncIterator[LateRedis]:
    proxy = LateRedis(redis_server.url.removeprefix("unix://"))
    await proxy.start()
    yield proxy
    await proxy.close()


async def test_ten_seconds_late_costs_the_budget_and_then_nothing(late: LateRedis) -> None:
    """redis-py alone would wait for each response and retry, which took down a hundred pods elsewhere."""
    link = RedisLink(f"redis://127.0.0.1:{late.port}")
    script = link.script(ECHO)
    late.seconds = 10
    try:
        async with asyncio.timeout(5):  # a hundred concurrent callers, and then a hundred one after the other
            together = await asyncio.gather(*(link.run(script, [], ["x"]) for _ in range(100)), return_exceptions=True)
            assert {type(each) for each in together} == {RedisUnavailable}
            for _ in range(100):
                with pytest.raises(RedisUnavailable):
                    await link.run(script, [], ["x"])
        assert link.breaker.is_open
    finally:
        await link.close()


async def test_a_late_response_reaches_no_other_request(late: LateRedis) -> None:
    """A caller that gave up leaves a response behind, on a connection that must not serve the next one."""
    link = RedisLink(f"redis://127.0.0.1:{late.port}")
    script = link.script(ECHO)
    try:
        while True:
            with suppress(RedisUnavailable):
                await link.run(script, [], ["first"])
                break
        for number in range(5):
            late.seconds = 0.2
            with pytest.raises(RedisUnavailable):
                await link.run(script, [], [f"given up {number}"])
            late.seconds = 0
            await asyncio.sleep(0.3)  # the late response has arrived by now
            link.breaker.succeeded()
            for caller in ("one", "other"):
                for _ in range(20):
                    with suppress(RedisUnavailable):  # on a busy machine
                        assert await link.run(script, [], [f"{caller} {number}"]) == f"{caller} {number}".encode()
                        break
                else:
                    raise AssertionError("Redis never answered")
    finally:
        await link.close()
