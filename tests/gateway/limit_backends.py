"""Both limit backends, on one clock that tests set."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal

from redis_server import RedisServer

from loragate.gateway.limits.backend import MICROSECONDS, BackendResponse, LimitBackend, OperationResult
from loragate.gateway.limits.memory_backend import MemoryBackend
from loragate.gateway.limits.operations import (
    Extend,
    LeaseRecord,
    ObservedBuckets,
    Operation,
    Renew,
    Reserve,
    Restore,
    Settle,
    SubjectUsage,
    WindowTotal,
)
from loragate.gateway.limits.redis_backend import SCRIPT, RedisBackend
from loragate.gateway.limits.subject import Subject
from loragate.gateway.resilience.redis import RedisLink

BackendKind = Literal["memory", "redis"]
NOON = (1_789_948_800 + 12 * 3600) * MICROSECONDS  # of a day in September 2026
LIFETIME = 3600 * MICROSECONDS


def limited(name: str, **limits: int) -> Subject:
    return Subject(name, name, {}, limits)  # type: ignore[arg-type]  # of kinds


def usage(
    name: str,
    *,
    day: tuple[int, int] | None = None,
    month: tuple[int, int] | None = None,
    buckets: ObservedBuckets | None = None,
) -> SubjectUsage:
    return SubjectUsage(
        name, buckets, None if day is None else WindowTotal(*day), None if month is None else WindowTotal(*month)
    )


class BackendOnTestClock:
    """A backend whose `now` stands still until a test moves it."""

    def __init__(self, backend: LimitBackend, server: RedisServer | None, clock: list[float]) -> None:
        self.backend = backend
        self.incarnation = ""
        self._server = server
        self._clock = clock
        self.advance(0)

    @property
    def now(self) -> float:
        return self._clock[0]

    def advance(self, seconds: float) -> None:
        self._clock[0] += round(seconds * MICROSECONDS)
        if self._server is not None:
            with self._server.client() as client:
                whole, part = divmod(int(self._clock[0]), MICROSECONDS)
                client.mset({"clock:seconds": whole, "clock:microseconds": part})

    def entries(self) -> int:
        """How many subjects of the tenant the backend knows."""
        if isinstance(self.backend, MemoryBackend):
            return len(self.backend._tenants["tn_a"]._entries)
        assert self._server is not None
        with self._server.client() as client:
            return int(client.hlen("loragate:limits:{tn_a}:subjects")) - 1  # one field is the incarnation

    def lose_state(self) -> None:
        """Lose everything but the time."""
        if isinstance(self.backend, MemoryBackend):
            self.backend.discard("tn_a")
            return
        assert self._server is not None
        self._server.flush()
        self.advance(0)

    async def reserve(
        self, lease: str, tokens: int, *subjects: Subject, lifetime: float = LIFETIME, tenant: str = "tn_a"
    ) -> OperationResult:
        return await self.execute(Reserve(lease, tokens, subjects, lifetime), tenant=tenant)

    async def extend(self, lease: str, tokens: int, *subjects: Subject, lifetime: float = LIFETIME) -> OperationResult:
        return await self.execute(Extend(lease, tokens, subjects, lifetime))

    async def settle(self, lease: str, tokens: int, *subjects: Subject) -> OperationResult:
        return await self.execute(Settle(lease, tokens, subjects))

    async def renew(self, ids: list[str], *subjects: Subject, lifetime: float = LIFETIME) -> OperationResult:
        return await self.execute(Renew(ids, subjects, lifetime))

    async def execute(self, operation: Operation, tenant: str = "tn_a") -> OperationResult:
        return (await self.execute_all(operation, tenant=tenant)).results[0]

    async def execute_all(self, *operations: Operation, tenant: str = "tn_a") -> BackendResponse:
        """Execute the commands in one call."""
        return await self.backend.execute(tenant, self.incarnation, operations)

    async def restore(
        self,
        *known: SubjectUsage,
        tenant: str = "tn_a",
        leases: list[LeaseRecord] | None = None,
        fresh: str | None = None,
    ) -> None:
        """Start a new backend, or restore one that lost its state, with the usage that is `known`."""
        operation = Restore(fresh=fresh or f"fresh-{tenant}", usage=known, leases=leases or [], lifetime=LIFETIME)
        self.incarnation = (await self.execute_all(operation, tenant=tenant)).incarnation


@asynccontextmanager
async def backend_on_test_clock(
    kind: BackendKind, redis_server: RedisServer | None
) -> AsyncIterator[BackendOnTestClock]:
    clock = [float(NOON)]
    if redis_server is None:
        yield BackendOnTestClock(MemoryBackend(lambda: clock[0]), None, clock)
        return
    link = RedisLink(redis_server.url, budget=5.0)
    script = SCRIPT.replace("redis.call('TIME')", "redis.call('MGET', 'clock:seconds', 'clock:microseconds')")
    assert script != SCRIPT
    try:
        yield BackendOnTestClock(RedisBackend(link, script), redis_server, clock)
    finally:
        await link.close()
