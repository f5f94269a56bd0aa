"""Both books of limits on one clock that tests turn."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

from redis_server import RedisServer

from loragate.gateway.limits.backend import MICROSECONDS, Answer, Book, Reply
from loragate.gateway.limits.memory_backend import LocalBook
from loragate.gateway.limits.redis_backend import SCRIPT, RedisBook
from loragate.gateway.resilience.redis import RedisLink

Kind = Literal["local", "redis"]
NOON = (1_789_948_800 + 12 * 3600) * MICROSECONDS  # of a day in September 2026
LIFE = 3600 * MICROSECONDS


class TurnedBook:
    """A book whose `now` stands still until a test moves it."""

    def __init__(self, book: Book, server: RedisServer | None, clock: list[float]) -> None:
        self.book = book
        self.born = ""
        self._server = server
        self._clock = clock
        self.turn(0)

    @property
    def now(self) -> float:
        return self._clock[0]

    def turn(self, seconds: float) -> None:
        self._clock[0] += round(seconds * MICROSECONDS)
        if self._server is not None:
            with self._server.client() as client:
                whole, part = divmod(int(self._clock[0]), MICROSECONDS)
                client.mset({"clock:seconds": whole, "clock:microseconds": part})

    def flush(self) -> None:
        """Redis forgets everything but the time."""
        assert self._server is not None
        self._server.flush()
        self.turn(0)

    async def ask(self, what: str, tenant: str = "tn_a", **details: Any) -> Reply:
        return (await self.ask_all({"what": what, **details}, tenant=tenant)).replies[0]

    async def ask_all(self, *asks: dict[str, Any], tenant: str = "tn_a") -> Answer:
        """In one call."""
        return await self.book.ask(tenant, self.born, [{"life": LIFE, **each} for each in asks])

    async def begin(self, *known: dict[str, Any], tenant: str = "tn_a", **details: Any) -> None:
        """A fresh book, or one that had forgotten, with the sums that `known` subjects bring."""
        details = {"subjects": list(known), "leases": [], "fresh": f"fresh-{tenant}", **details}
        self.born = (await self.ask_all({"what": "restore", **details}, tenant=tenant)).born


@asynccontextmanager
async def turned_book(kind: Kind, redis_server: RedisServer | None) -> AsyncIterator[TurnedBook]:
    clock = [float(NOON)]
    if redis_server is None:
        yield TurnedBook(LocalBook(lambda: clock[0]), None, clock)
        return
    link = RedisLink(redis_server.url, budget=5.0)
    script = SCRIPT.replace("redis.call('TIME')", "redis.call('MGET', 'clock:seconds', 'clock:microseconds')")
    assert script != SCRIPT
    try:
        yield TurnedBook(RedisBook(link, script), redis_server, clock)
    finally:
        await link.close()
