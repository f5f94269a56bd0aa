"""Three gateway workers in one server: what they share, what remains of a killed one, and which
resources are exclusive.
"""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from redis_server import RedisServer
from running_server import RunningServer, clean_environment, until

from .conftest import Tiny
from .workers import LONG, PROMPT, TOKENS, Tenant, Workers, database

WORKERS = 3
MANY = 40


pytestmark = pytest.mark.long  # the fast set has each of these with fewer processes


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def workers(
    request: pytest.FixtureRequest, tiny: Tiny, tmp_path_factory: pytest.TempPathFactory, redis_of_session: RedisServer
) -> Iterator[Workers]:
    options = ("--model", str(tiny.base), "--workers", str(WORKERS))
    with database(request.param) as settings:
        server = RunningServer(
            tmp_path_factory.mktemp("workers"), *options, LORAGATE_REDIS_URL=redis_of_session.url, **settings
        )
        yield Workers(server, redis_of_session)
        assert server.stop() == 0


async def test_requests_spread_over_the_workers(workers: Workers) -> None:
    tenant = workers.tenant()
    for call in (tenant.complete, tenant.generate):
        before = workers.answered()
        assert await asyncio.gather(*(call() for _ in range(MANY))) == [True] * MANY
        gained = workers.answered() - before
        assert sum(gained.values()) == MANY
        assert set(gained) == set(workers.pids), gained


@pytest.mark.parametrize(
    ("limits", "cost", "admitted"),
    [
        ({"requests_per_minute": 5}, 1, 5),
        ({"tokens_per_minute": 180}, len(PROMPT) + TOKENS, 10),
        ({"tokens_per_day": 180}, len(PROMPT) + TOKENS, 10),
    ],
)
async def test_limits_are_exact_to_the_request(
    workers: Workers, limits: dict[str, int], cost: int, admitted: int
) -> None:
    async def burst() -> tuple[Tenant, int, float]:
        tenant, started = workers.tenant(**limits), time.monotonic()
        return tenant, await tenant.admitted(MANY), time.monotonic() - started

    tenant, found, seconds = await workers.undisturbed(burst)
    [(name, limit)] = limits.items()
    leaked = int(seconds / 60 * limit / cost) if name.endswith("minute") else 0
    assert admitted <= found <= admitted + leaked
    assert tenant.usage_of(found) == (found, found * TOKENS)


async def test_concurrency_is_exact_to_the_request(workers: Workers) -> None:
    assert await workers.tenant(max_concurrency=7).most_at_once(24) == 7


async def test_a_killed_worker(workers: Workers) -> None:
    tenant = workers.tenant(max_concurrency=2)
    before, asked = workers.server.runtime["pids"], workers.metrics()["loragate_http_requests_total"]
    worker, received = await tenant.loses_its_worker()
    assert await tenant.admitted(1) == 1, "its place is taken for now, the other one is free"
    until(lambda: tenant.usage()["requests"] == 2)
    billed = tenant.usage()["completion_tokens"] - TOKENS
    assert received <= billed < LONG["max_tokens"]

    until(lambda: len(set(workers.pids) - set(before["gateway"])) == 1)
    assert set(before["gateway"]) - set(workers.pids) == {worker}
    assert workers.server.runtime["pids"] | {"gateway": 0} == before | {"gateway": 0}
    until(lambda: workers.metrics()["loragate_gateway_ready_workers"] == WORKERS)
    assert workers.metrics()["loragate_http_requests_total"] > asked, "a dead worker stays in the sums"
    assert workers.metrics()["loragate_http_requests_in_flight"] == 1, "this scrape"
    assert await workers.tenant().admitted(MANY) == MANY


@pytest.mark.long
async def test_a_killed_workers_places_are_free_after_a_while(workers: Workers) -> None:
    tenant = workers.tenant(max_concurrency=3)
    started = time.monotonic()
    async with AsyncExitStack() as held:
        assert await tenant.hold(held, 3) == 3
        assert await workers.undisturbed(lambda: tenant.admitted(MANY)) == 0
        for pid in workers.pids:
            os.kill(pid, signal.SIGKILL)
    until(lambda: workers.metrics()["loragate_gateway_ready_workers"] == WORKERS)
    while not await workers.undisturbed(tenant.complete):
        await asyncio.sleep(0.2)
    assert time.monotonic() - started > 20, "leases live for thirty seconds, and are renewed every ten"
    while tenant.leases():  # others may have been renewed later; a request removes those that are over
        await tenant.complete()
    assert await tenant.most_at_once(MANY) == 3


@pytest.mark.long  # with fakes of the engine and the gateway it is in tests/cli/supervisor
def test_a_second_server_on_the_same_grpc_port_is_rejected_by_name(workers: Workers, tmp_path: Path) -> None:
    port = workers.server.runtime["grpc_target"].rpartition(":")[2]
    options = ("--model", "any", "--port", "0", "--grpc-port", port, "--data-dir", str(tmp_path))
    command = [sys.executable, "-m", "loragate.cli.main", "serve", *options]
    second = subprocess.run(command, env=clean_environment(), capture_output=True, text=True)
    assert second.returncode == 1
    expected = f"port {port} on 127.0.0.1 is in use: choose another one with --grpc-port or LORAGATE_GRPC_PORT"
    assert expected in second.stderr
