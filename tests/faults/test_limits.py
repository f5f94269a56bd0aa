"""Limits when Redis is slow, gone or empty, and when several processes share it."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from redis_server import RedisServer

from loragate.adapter_store.auth.principal import Scope, TenantPrincipal
from loragate.adapter_store.limits import Limits, TenantLimits
from loragate.gateway.limits import tenant_pipeline
from loragate.gateway.limits.backend import MICROSECONDS
from loragate.gateway.limits.errors import RateLimited
from loragate.gateway.limits.fallback import LocalShare
from loragate.gateway.limits.lease import Lease
from loragate.gateway.limits.limiter import Limiter
from loragate.gateway.limits.metrics import LimitMetrics
from loragate.gateway.limits.operations import SubjectUsage, WindowTotal
from loragate.gateway.limits.redis_backend import RedisBackend
from loragate.gateway.resilience.redis import RedisLink


class NoTotals:
    async def fetch(self, tenant_id: str, subjects: Any, now: float) -> list[SubjectUsage]:
        day, month = int(now // 86400e6), time.gmtime(now / 1e6)
        months = month.tm_year * 12 + month.tm_mon - 1
        today, this_month = WindowTotal(day, 0), WindowTotal(months, 0)
        return [SubjectUsage(subject.name, day=today, month=this_month) for subject in subjects]


class Worker:
    """The parts of one gateway process."""

    def __init__(self, url: str, sharers: int) -> None:
        self.registry = CollectorRegistry()
        metrics = LimitMetrics(self.registry)
        self.link = RedisLink(url, metrics.redis_unavailable)
        totals = NoTotals()
        self.limiter = Limiter(RedisBackend(self.link), LocalShare(sharers, totals), totals, metrics)

    @property
    def away(self) -> float | None:
        return self.registry.get_sample_value("loragate_limits_redis_unavailable")

    @property
    def alone(self) -> float | None:
        """Return how many requests it decided without Redis."""
        return self.registry.get_sample_value("loragate_limits_local_decisions_total")

    async def admitted(self, caller: TenantPrincipal, most: int, tokens: int = 1) -> list[Lease]:
        """Return how many of up to `most` requests are admitted."""
        leases = []
        for _ in range(most):
            try:
                leases.append(await self.limiter.admit(caller, None, tokens))
            except RateLimited:
                break
        return leases


@asynccontextmanager
async def workers(url: str, count: int) -> AsyncIterator[list[Worker]]:
    all_ = [Worker(url, count) for _ in range(count)]
    for worker in all_:
        worker.limiter.start()
    try:
        yield all_
    finally:
        await asyncio.gather(*(worker.limiter.close() for worker in all_))
        for worker in all_:
            await worker.link.close()


def caller(**limits: int) -> TenantPrincipal:
    return TenantPrincipal("tn_a", "a", 1.0, "key", frozenset({Scope.ALL}), TenantLimits(**limits), Limits())


async def _until(holds: Callable[[], bool]) -> None:
    while not holds():
        await asyncio.sleep(0.01)


async def test_workers_share_a_limit(redis_server: RedisServer) -> None:
    async with workers(redis_server.url, 4) as four:
        taken = await asyncio.gather(*(worker.admitted(caller(max_concurrency=10), 10) for worker in four))
        assert sum(map(len, taken)) == 10


@pytest.mark.parametrize("fault", ["pause", "stop"])
@pytest.mark.parametrize("limits", [{"requests_per_minute": 40}, {"max_concurrency": 40}, {"tokens_per_day": 40}])
async def test_without_redis_each_worker_has_its_share(
    redis_server: RedisServer, fault: str, limits: dict[str, int]
) -> None:
    """No request fails, and together the workers do not exceed the limit."""
    async with workers(redis_server.url, 4) as four:
        getattr(redis_server, fault)()
        taken = await asyncio.gather(*(worker.admitted(caller(**limits), 40) for worker in four))
        assert [len(each) for each in taken] == [10, 10, 10, 10]
        assert [worker.away for worker in four] == [1, 1, 1, 1]


async def test_a_share_is_at_least_one(redis_server: RedisServer) -> None:
    redis_server.stop()
    async with workers(redis_server.url, 4) as four:
        assert [len(await worker.admitted(caller(requests_per_minute=2), 5)) for worker in four] == [1, 1, 1, 1]


async def test_a_slow_redis_costs_its_budget_and_then_nothing(redis_server: RedisServer) -> None:
    async with workers(redis_server.url, 1) as (worker,):
        redis_server.pause()
        for _ in range(3):
            started = asyncio.get_running_loop().time()
            await worker.limiter.admit(caller(max_concurrency=100), None, 1)
            assert asyncio.get_running_loop().time() - started < 5  # redis-py alone would wait for minutes
        await _until(lambda: worker.link.breaker.is_open)


@pytest.mark.parametrize("fault", ["pause", "stop"])
async def test_exhausted_limits_stay_exhausted_without_redis(redis_server: RedisServer, fault: str) -> None:
    spent = caller(requests_per_minute=4, tokens_per_day=1000)
    async with workers(redis_server.url, 2) as both:
        assert len(await both[0].admitted(spent, 9)) == 4
        assert await both[1].admitted(spent, 9) == []
        getattr(redis_server, fault)()
        for worker in both:
            assert await worker.admitted(spent, 9) == []


@pytest.mark.parametrize("fault", ["flush", "restart"])
async def test_a_flush_grants_nothing_and_takes_nothing(redis_server: RedisServer, fault: str) -> None:
    limits = caller(requests_per_minute=5, max_concurrency=4, tokens_per_day=100)
    fresh = TenantPrincipal("tn_b", "b", 1.0, "other", frozenset({Scope.ALL}), limits.limits, Limits())
    async with workers(redis_server.url, 2) as (first, second):
        held = [*await first.admitted(limits, 2, 10), *await second.admitted(limits, 2, 10)]
        assert await first.admitted(limits, 1) == []  # it has seen that there are four
        if fault == "flush":
            redis_server.flush()
        else:
            redis_server.stop()
            redis_server.start()
        for worker in (first, second):
            assert await worker.admitted(limits, 9) == []  # four run, and one more request a minute
        held[0].settle(10)
        await _until_settled(first)
        assert len(await second.admitted(limits, 9, 1)) == 1
        held[1].settle(10)
        await _until_settled(first)
        with pytest.raises(RateLimited, match="requests per minute"):
            await first.limiter.admit(limits, None, 1)
        assert len(await first.admitted(fresh, 9, 10)) == 4


async def test_thousands_of_running_requests_are_sent_to_a_new_redis(redis_server: RedisServer) -> None:
    """In chunks: a chunk that takes longer than the budget would never arrive."""
    limits = caller(max_concurrency=2000)
    async with workers(redis_server.url, 1) as (worker,):
        held = []
        for _ in range(20):  # a slow machine makes 2,000 at once wait for longer than the budget
            held += await asyncio.gather(*(worker.limiter.admit(limits, None, 1) for _ in range(100)))
        redis_server.flush()
        held.append(await worker.limiter.admit(caller(max_concurrency=2001), None, 1))
        with redis_server.client() as redis:
            await _until(lambda: sum(map(bool, redis.hvals("loragate:limits:{tn_a}:leases"))) > 2001)  # and "born"
        assert await worker.admitted(limits, 1) == []
        for lease in held:
            lease.settle(1)
        await _until_settled(worker)
        assert len(await worker.admitted(limits, 2)) == 2


async def test_concurrent_requests_are_sent_together(redis_server: RedisServer) -> None:
    async with workers(redis_server.url, 1) as (worker,):
        await worker.admitted(caller(max_concurrency=500), 1)
        with redis_server.client() as client:
            before = client.info("commandstats")["cmdstat_evalsha"]["calls"]
            await asyncio.gather(*(worker.limiter.admit(caller(max_concurrency=500), None, 1) for _ in range(200)))
            after = client.info("commandstats")["cmdstat_evalsha"]["calls"]
        assert after - before <= 4


async def _until_settled(worker: Worker) -> None:
    await _until(lambda: not worker.limiter.unsettled)


async def test_redis_comes_back_and_receives_the_usage_of_the_meantime(redis_server: RedisServer) -> None:
    limits = caller(tokens_per_day=100)
    async with workers(redis_server.url, 1) as (worker,):
        before = await worker.limiter.admit(limits, None, 10)
        redis_server.pause()
        meanwhile = await worker.limiter.admit(limits, None, 50)
        for lease in (before, meanwhile):
            lease.settle(20)
        redis_server.resume()
        await _until_settled(worker)
        assert worker.away == 0
        assert len(await worker.admitted(limits, 99, 10)) == 6


async def test_an_orderly_end_settles_everything(redis_server: RedisServer) -> None:
    limits = caller(max_concurrency=3, tokens_per_day=100)
    async with workers(redis_server.url, 1) as (worker,):
        for lease in await worker.admitted(limits, 9, 30):
            lease.settle(1)
    async with workers(redis_server.url, 1) as (worker,):
        assert len(await worker.admitted(limits, 9, 30)) == 3


async def test_leases_of_a_killed_worker_expire(redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """They expire by Redis' clock, and no earlier; other workers continue to renew theirs."""
    monkeypatch.setattr(tenant_pipeline, "LEASE_LIFETIME", MICROSECONDS)
    limits = caller(max_concurrency=2)
    async with workers(redis_server.url, 2) as (killed, other):
        held = await killed.admitted(limits, 9)
        assert len(held) == 2
        assert killed.limiter._renewing is not None
        killed.limiter._renewing.cancel()
        assert await other.admitted(limits, 9) == []
        while not await other.admitted(limits, 1):
            await asyncio.sleep(0.05)


async def test_four_processes_are_exact_to_the_request(redis_server: RedisServer) -> None:
    """They send 1600 concurrent requests of two tokens each, and 1001 tokens are not refunded."""
    program, pipe = str(Path(__file__).parent / "limits_worker.py"), asyncio.subprocess.PIPE
    four = [
        await asyncio.create_subprocess_exec(sys.executable, program, redis_server.url, stdin=pipe, stdout=pipe)
        for _ in range(4)
    ]
    answers = await asyncio.gather(*(process.communicate(b"go\n") for process in four))
    assert sum(int(out) for out, _ in answers) == 500


async def test_a_caller_that_leaves_during_admission_leaks_nothing(redis_server: RedisServer) -> None:
    limits = caller(max_concurrency=1)
    async with workers(redis_server.url, 1) as (worker,):
        for lease in await worker.admitted(limits, 1):
            lease.settle(1)
        for _ in range(20):
            leaving = asyncio.create_task(worker.limiter.admit(limits, None, 1))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            leaving.cancel()
            with suppress(asyncio.CancelledError, RateLimited):
                (await leaving).settle(1)
            await _until_settled(worker)
        assert len(await worker.admitted(limits, 1)) == 1


async def test_requests_admitted_without_redis_are_charged_by_a_new_redis(redis_server: RedisServer) -> None:
    limits = caller(tokens_per_day=100)
    async with workers(redis_server.url, 1) as (worker,):
        redis_server.stop()
        lease = await worker.limiter.admit(limits, None, 50)
        redis_server.start()
        await worker.link.client.ping()  # connecting takes its time, and is not tested here
        other = await worker.limiter.admit(limits, None, 1)
        lease.settle(20)
        await _until_settled(worker)
        assert len(await worker.admitted(limits, 99, 1)) == 79
        other.settle(1)


@pytest.mark.parametrize("fault", ["pause", "stop"])
async def test_running_requests_count_when_redis_fails(redis_server: RedisServer, fault: str) -> None:
    limits = caller(max_concurrency=4)
    async with workers(redis_server.url, 2) as (worker, _):
        running = await worker.admitted(limits, 2)
        getattr(redis_server, fault)()
        assert await worker.admitted(limits, 9) == []  # its share is two
        running[0].settle(1)
        assert len(await worker.admitted(limits, 9)) == 1


async def test_requests_admitted_without_redis_count_when_it_is_back(redis_server: RedisServer) -> None:
    limits = caller(max_concurrency=2)
    async with workers(redis_server.url, 1) as (worker,):
        redis_server.pause()
        alone = await worker.admitted(limits, 1)
        redis_server.resume()
        await _until(lambda: not worker.link.breaker.is_open)
        await _until_settled(worker)
        more = await worker.admitted(limits, 9)
        assert len(more) == 1
        alone[0].settle(1)
        await _until_settled(worker)
        assert len(await worker.admitted(limits, 9)) == 1
