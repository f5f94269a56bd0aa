"""Clients of all kinds for minutes, while gateway workers, the engine and Redis are killed at random, versions of an
adapter are published and keys are revoked.

CHAOS_SECONDS=20 pytest -m long tests/e2e/test_chaos.py -k sqlite   # a quick look
CHAOS_SEED=7 …                                                      # the same order of faults again
"""

import asyncio
import os
import random
import secrets
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import grpc.aio
import httpx
import pytest
from history import History, Release, Revocation, violations
from redis_server import RedisServer
from rich.console import Console
from rich.table import Table
from running_server import RunningServer, client, ok, until, upload

from .chaos_clients import Client, Crowd
from .chaos_faults import Faults
from .chaos_history import Releases, Texts, revoke
from .chaos_ledger import Entry, entries, sums, sums_of
from .chaos_records import Question, RequestRecord, questions
from .conftest import Tiny
from .workers import MODEL, Tenant, Workers, database

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]

WORKERS = 2
CLIENTS = 5  # of each tenant
MAX_CONCURRENCY = 6
# Each tenant's adapters and their folders: the same name can be another adapter.
ADAPTERS = {"acme": {"a": "a", "b": "b"}, "globex": {"a": "d", "c": "c"}, "initech": {"a": "b"}}
RELEASED = ("initech", "a")  # new versions of this adapter are published all the time
LEASE_SECONDS = 30
# Within 5 seconds a change applies in all workers; then a request has to be read, tokenized and admitted.
BOUND_SECONDS = 5 + 2
_CHANNEL_OPTIONS = (
    ("grpc.use_local_subchannel_pool", 1),  # so that tenants reach different workers
    ("grpc.enable_retries", 0),  # a request that is sent twice is rightly counted twice
    ("grpc.max_reconnect_backoff_ms", 500),
)


@dataclass(frozen=True)
class Run:
    workers: Workers
    database_url: str
    seconds: float
    seed: int


@pytest.fixture(params=[("sqlite", 60), ("postgres", 300)], ids=lambda param: param[0])
def run(request: pytest.FixtureRequest, tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    kind, seconds = request.param
    redis = RedisServer()
    data_dir = tmp_path_factory.mktemp("chaos")
    with database(kind) as settings:
        options = ("--model", str(tiny.base), "--workers", str(WORKERS))
        server = RunningServer(data_dir, *options, LORAGATE_REDIS_URL=redis.url, **settings)
        try:
            yield Run(
                Workers(server, redis),
                settings.get("LORAGATE_DATABASE_URL", f"sqlite+aiosqlite:///{data_dir}/loragate.db"),
                float(os.environ.get("CHAOS_SECONDS", seconds)),
                int(os.environ.get("CHAOS_SEED", secrets.randbelow(1_000_000))),
            )
        finally:
            server.stop()
            redis.close()


async def test_the_ledger_balances_after_chaos(run: Run, tiny: Tiny, capsys: pytest.CaptureFixture[str]) -> None:
    workers, rng = run.workers, random.Random(run.seed)
    with capsys.disabled():
        print(f"\nchaos for {run.seconds:g} s, CHAOS_SEED={run.seed}")
    day = int(40 * run.seconds) + 20_000
    tenants = {
        name: workers.tenant(max_concurrency=MAX_CONCURRENCY, **({"tokens_per_day": day} if name == "initech" else {}))
        for name in ADAPTERS
    }
    faults, stopping = Faults(workers, rng), asyncio.Event()
    releases = Releases(tenants["initech"], "a", ("b", "c"), tiny, random.Random(rng.random()))
    async with AsyncExitStack() as stack:
        crowds = [await _crowd(stack, tenant, name, rng) for name, tenant in tenants.items()]
        for name, tenant in tenants.items():
            _upload_adapters(tenant, name, tiny)
        baselines = [await crowd.baseline() for crowd in crowds]
        _check_that_models_differ(baselines)
        leavers = [tenant.another_key() for tenant in tenants.values()]
        leaving = [await _crowd(stack, tenant, name, rng) for name, tenant in zip(tenants, leavers, strict=True)]
        clients = [asyncio.create_task(crowd.run()) for crowd in crowds for _ in range(CLIENTS)]
        clients += [asyncio.create_task(crowd.run()) for crowd in leaving]
        clients.append(asyncio.create_task(releases.run(stopping)))
        striking = asyncio.create_task(faults.strike(run.seconds))
        revoking = asyncio.gather(*(_revoke_later(each, rng.uniform(0.2, 0.6) * run.seconds) for each in leavers))
        await asyncio.wait({striking, *clients}, return_when=asyncio.FIRST_COMPLETED)
        for crowd in (*crowds, *leaving):
            crowd.stopping.set()
        stopping.set()
        await striking
        await asyncio.gather(*clients)
        revocations = await revoking
    until(lambda: _is_calm(workers), 120)
    ledger = await entries(run.database_url)
    records = [each for crowd in (*crowds, *leaving) for each in crowd.records]
    with capsys.disabled():
        _show(faults, records, ledger, {tenant.id: name for name, tenant in tenants.items()})
        print(f"{len(releases.attempts)} publications, {len(revocations)} revocations")

    released = (tenants[RELEASED[0]].id, RELEASED[1])
    assert [
        (each.interface, each.question, each.outcome, each.text)
        for crowd, answers in zip(crowds + leaving, baselines * 2, strict=True)
        for each in crowd.records
        if (each.tenant_id, each.question.model) != released and each.contradicts(answers[each.question])
    ] == [], "wrong answers"
    history = _history(records, ledger, _releases(tenants, releases), revocations)
    assert violations(history, Texts(tiny)) == []
    assert any(each.outcome[:3] == "401" for each in records), "nothing was sent after a revocation"
    by_width = await sums(run.database_url)
    assert by_width == {"hour": sums_of(ledger), "day": sums_of(ledger)}
    assert sums_of(ledger)[f"{tenants['initech'].id} tokens"] <= day
    for name in ("acme", "globex"):
        await _check_that_no_lease_leaked(tenants[name])


def _history(
    records: list[RequestRecord], ledger: list[Entry], releases: list[Release], revocations: list[Revocation]
) -> History:
    requests, rows = [each.observed(MODEL) for each in records], [each.observed() for each in ledger]
    return History(requests, rows, releases, revocations, BOUND_SECONDS)


def _releases(tenants: dict[str, Tenant], published: Releases) -> list[Release]:
    """Return all versions of all adapters."""
    first = [
        Release(tenant_id=tenants[name].id, adapter=adapter, version=1, content=folder, begun=0.0, done=0.0)
        for name, adapters in ADAPTERS.items()
        for adapter, folder in adapters.items()
        if (name, adapter) != RELEASED
    ]
    return first + published.known(initial=ADAPTERS[RELEASED[0]][RELEASED[1]])


async def _revoke_later(tenant: Tenant, seconds: float) -> Revocation:
    await asyncio.sleep(seconds)
    return await revoke(tenant)


def _upload_adapters(tenant: Tenant, name: str, tiny: Tiny) -> None:
    with client(tenant.workers.server.base_url, tenant.key) as http:
        for adapter, folder in ADAPTERS[name].items():
            ok(upload(http, adapter, tiny.adapters[folder]))


async def _crowd(stack: AsyncExitStack, tenant: Tenant, name: str, rng: random.Random) -> Crowd:
    base_url = tenant.workers.server.base_url
    headers = {"authorization": f"Bearer {tenant.key}"}
    options = [
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.enable_retries", 0),
        ("grpc.max_reconnect_backoff_ms", 500),
    ]
    channel = grpc.aio.insecure_channel(tenant.workers.server.runtime["grpc_target"], options=options)
    http_client = await stack.enter_async_context(httpx.AsyncClient(base_url=base_url, headers=headers, timeout=None))
    await stack.enter_async_context(channel)
    asked = questions((MODEL, *ADAPTERS[name]))
    return Crowd(Client(tenant, http_client, channel), asked, random.Random(rng.random()))


def _check_that_models_differ(baselines: list[dict[Question, RequestRecord]]) -> None:
    """Check that models differ; otherwise a wrong adapter would pass."""
    texts: dict[tuple[Any, ...], dict[str, str]] = {}
    for name, answers in zip(ADAPTERS, baselines, strict=True):
        for question, record in answers.items():
            if question.what == "text" and question.tokens > 4:
                model = ADAPTERS[name].get(question.model, MODEL)
                texts.setdefault((question.prompt, question.tokens), {})[model] = record.text
    for by_model in texts.values():
        assert all(one != other for one, other in combinations(by_model.values(), 2))


def _is_calm(workers: Workers) -> bool:
    """Return whether all workers run, no request is in flight and no usage waits for the ledger."""
    try:
        metrics = workers.metrics()
    except httpx.TransportError:
        return False
    usage = workers.server.data_dir / "usage"
    return (
        metrics["loragate_gateway_ready_workers"] == WORKERS
        and workers.in_flight() == 0
        and metrics["loragate_usage_waiting_records"] == 0
        and len(list(usage.iterdir())) == WORKERS
        and not list(usage.glob("*/*.segment"))
    )


async def _check_that_no_lease_leaked(tenant: Tenant) -> None:
    """Check that the leases of killed workers expire: then exactly the limit's number of requests is admitted."""
    await asyncio.sleep(LEASE_SECONDS)
    assert await tenant.complete()  # a request removes expired leases
    assert await tenant.most_at_once(3 * MAX_CONCURRENCY) == MAX_CONCURRENCY


def _show(faults: Faults, records: list[RequestRecord], ledger: list[Entry], names: dict[str, str]) -> None:
    console = Console()
    console.print(_table("faults", ("fault", "times"), sorted(faults.done.items())))
    outcomes = Counter((each.interface, each.outcome) for each in records)
    rows = [(interface, outcome, count) for (interface, outcome), count in sorted(outcomes.items())]
    console.print(_table("requests", ("interface", "outcome", "requests"), rows))
    sums = [(names[each], *_balance(each, records, ledger)) for each in names]
    console.print(_table("ledger", ("tenant", "rows", "crashed", "tokens billed", "tokens reported"), sums))


def _balance(tenant_id: str, records: list[RequestRecord], ledger: list[Entry]) -> tuple[int, int, int, int]:
    mine = [entry for entry in ledger if entry.tenant_id == tenant_id]
    billed = sum(entry.prompt_tokens + entry.completion_tokens for entry in mine)
    reported = sum(sum(each.usage) for each in records if each.tenant_id == tenant_id and each.usage)
    return len(mine), sum(entry.outcome == "crashed" for entry in mine), billed, reported


def _table(title: str, columns: Iterable[str], rows: Iterable[Iterable[Any]]) -> Table:
    table = Table(*columns, title=title)
    for row in rows:
        table.add_row(*map(str, row))
    return table
