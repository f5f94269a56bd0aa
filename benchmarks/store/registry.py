"""Response times of the registry with 100,000 adapters of 1,000 tenants.

    python -m benchmarks.store.registry
    python -m benchmarks.store.registry --adapters 2000   # a quick look

It lists, pages, filters, searches and resolves aliases through the store as the gateway does, with four concurrent
requests in one process, on its own Postgres (Debian's, started as in the tests) and on SQLite, and compares each with
`SELECT 1` through the same driver in the same kind of transaction. It then resolves a model name that the gateway has
cached, and compares that with a GET of Redis through the gateway's client. Of several rounds of each case, the one with
the lowest 99th percentile counts, which other load on the machine affected least; `rounds` has the others.
"""

import argparse
import asyncio
import os
import random
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from rich.console import Console
from rich.table import Table
from sqlalchemy import select

from benchmarks.gateway.worker import process
from benchmarks.lib.report import write
from benchmarks.store.registry_load import BASE_DIGEST, RARE_TAG, RARE_WORD, Library, fill
from loragate.adapter_store.adapters.filter import AdapterFilter
from loragate.adapter_store.auth.principal import Scope, TenantPrincipal
from loragate.adapter_store.database.schema import upgrade
from loragate.adapter_store.store import Store
from loragate.engine.runtime.interpreter import collect_less_often, freeze_objects
from loragate.gateway.generation.resolver import Resolver
from loragate.gateway.resilience.redis import RedisLink

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "support"))
from private_postgres import private_postgres

CONCURRENCY = 4
PAGE = 50
WARM_UP = 100
RESOLVED = 200_000

Case = Callable[[], Awaitable[object]]
console = Console(stderr=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--adapters", type=int, default=100_000, help="adapters in the registry")
    parser.add_argument("--tenants", type=int, default=1000, help="tenants that own them")
    parser.add_argument("--requests", type=int, default=600, help="requests of each case in a round")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each case")
    parser.add_argument(
        "--only", choices=("postgres", "sqlite"), help="measure one database and write a separate result"
    )
    arguments = parser.parse_args()
    figures: dict[str, Any] = {
        "adapters": arguments.adapters,
        "tenants": arguments.tenants,
        "concurrency": CONCURRENCY,
        "page": PAGE,
        "load_average": os.getloadavg()[0],
    }
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="registry-")))
        urls = {"sqlite": f"sqlite:///{folder / 'store.db'}"}
        if arguments.only != "sqlite":
            urls = {"postgres": stack.enter_context(private_postgres(autovacuum=True)).url("postgres")} | urls
        redis = f"{folder}/redis.sock"
        stack.enter_context(process(["redis-server", "--port", "0", "--unixsocket", redis, "--save", ""]))
        for name in urls if arguments.only is None else [arguments.only]:
            figures[name] = asyncio.run(_database(urls[name], f"unix://{redis}", arguments))
            figures[name]["load_average"] = os.getloadavg()[0]
            _show(name, figures[name])
            file = "registry" if arguments.only is None else f"registry_{arguments.only}"
            console.print(f"written to {write(file, figures).name}")


async def _database(url: str, redis_url: str, arguments: argparse.Namespace) -> dict[str, Any]:
    await upgrade(url)
    library = await fill(url, arguments.adapters, arguments.tenants)
    freeze_objects()
    collect_less_often()  # as the gateway does
    with tempfile.TemporaryDirectory() as blobs:
        store = await Store.open(url, blobs, b"a secret key for a benchmark, 32 bytes")
        try:
            cases = _cases(store, library)
            rounds: dict[str, list[dict[str, float]]] = {name: [] for name in cases}
            for _ in range(arguments.rounds):
                for name, case in cases.items():
                    rounds[name].append(await _measure(case, arguments.requests))
            figures: dict[str, Any] = {name: min(of, key=lambda spread: spread["p99"]) for name, of in rounds.items()}
            figures["resolving"] = await _measure_resolving(store, library, redis_url)
            figures["rounds"] = {name: [spread["p99"] for spread in of] for name, of in rounds.items()}
            return figures
        finally:
            await store.close()


def _cases(store: Store, library: Library) -> dict[str, Case]:
    """Return the cases; each call of a case queries something else."""
    rng = random.Random(7)
    less_frequent = library.words[len(library.words) // 50 :]

    def tenants(wanted: AdapterFilter | None = None, *, largest: bool = False, paged: bool = False) -> Case:
        own = [pair for pair in zip(library.ids, library.adapters, strict=True) if pair[1][0] == library.tenants[0]]

        async def ask() -> object:
            tenant = library.tenants[0] if largest else rng.choice(library.tenants)
            after = rng.choice(own)[0] if paged else None
            async with store.tenant(tenant) as scope:
                return await scope.adapters.list(wanted or AdapterFilter(), after=after, limit=PAGE)

        return ask

    def operators(wanted: Callable[[], AdapterFilter], *, paged: bool = False) -> Case:
        async def ask() -> object:
            after = rng.choice(library.ids) if paged else None
            async with store.admin() as admin:
                return await admin.published.list(wanted(), after=after, limit=PAGE)

        return ask

    async def select_1() -> object:
        async with store.admin() as admin:
            return await admin.published._session.execute(select(1))

    async def get() -> object:
        tenant, name = rng.choice(library.adapters)
        async with store.tenant(tenant) as scope:
            return await scope.adapters.get(name)

    async def resolve() -> object:
        tenant, name = rng.choice(library.adapters)
        async with store.tenant(tenant) as scope:
            return await scope.adapters.route(name, alias="canary")

    def word(length: int | None = None) -> AdapterFilter:
        return AdapterFilter(rng.choice(less_frequent)[:length])

    return {
        "SELECT 1": select_1,
        "resolve an alias": resolve,
        "get an adapter": get,
        "list": tenants(),
        "list, of a tenant with a twentieth of all": tenants(largest=True),
        "its page after any adapter": tenants(largest=True, paged=True),
        "filter by tag": tenants(AdapterFilter(tags=("prod",))),
        "filter by tag, of that tenant": tenants(AdapterFilter(tags=(library.tags[7],)), largest=True),
        "search": tenants(AdapterFilter(library.words[3][1:])),
        "search, of that tenant": tenants(AdapterFilter(library.words[70]), largest=True),
        "operator: page after any adapter": operators(AdapterFilter, paged=True),
        "operator: a tag of a third": operators(lambda: AdapterFilter(tags=("prod",))),
        "operator: one of 300 tags": operators(lambda: AdapterFilter(tags=(rng.choice(library.tags),))),
        "operator: a tag of one adapter": operators(lambda: AdapterFilter(tags=(RARE_TAG,))),
        "operator: search for a frequent word": operators(lambda: AdapterFilter(library.words[0])),
        "operator: search for words": operators(word),
        "operator: search for three letters": operators(lambda: word(3)),
        "operator: search for two letters": operators(lambda: word(2)),
        "operator: search for one letter": operators(lambda: word(1)),
        "operator: search for two letters that begin no word": operators(lambda: AdapterFilter("zq")),
        "operator: search for a word of one adapter": operators(lambda: AdapterFilter(RARE_WORD)),
        "operator: search for what is nowhere": operators(lambda: AdapterFilter("nowhere to be found")),
        "operator: search, page after any adapter": operators(word, paged=True),
        "operator: search and tag": operators(lambda: AdapterFilter(word().search, ("prod",))),
    }


async def _measure(case: Case, requests: int) -> dict[str, float]:
    """Return the milliseconds per request with `CONCURRENCY` concurrent ones."""
    seconds: list[float] = []

    async def ask(count: int) -> None:
        for _ in range(count):
            started = time.perf_counter()
            await case()
            seconds.append(time.perf_counter() - started)

    for count in (WARM_UP, requests):
        seconds.clear()
        await asyncio.gather(*(ask(count // CONCURRENCY) for _ in range(CONCURRENCY)))
    return _spread(seconds)


async def _measure_resolving(store: Store, library: Library, redis_url: str) -> dict[str, Any]:
    """Measure a cached name, an uncached one, and a GET of Redis, the lower bound of a shared cache."""
    tenant, name = library.adapters[-1]
    caller = TenantPrincipal(tenant, "", 1.0, "key", frozenset({Scope.ALL}))
    base: Any = SimpleNamespace(id="base", manifest=SimpleNamespace(base_digest=BASE_DIGEST))
    resolver = Resolver(store, lifetime=3600.0)
    warm = await _measure_sequentially(lambda: resolver.resolve(caller, base, name), RESOLVED)

    async def cold() -> object:
        resolver._routes.discard(tenant)
        return await resolver.resolve(caller, base, name)

    link = RedisLink(redis_url)
    await link.client.set("route", b"x" * 400)
    redis = await _measure_sequentially(lambda: link.client.get("route"), RESOLVED // 100)
    await link.close()
    return {"warm": warm, "cold, from SQL": await _measure_sequentially(cold, RESOLVED // 100), "a GET of Redis": redis}


async def _measure_sequentially(case: Case, requests: int) -> dict[str, float]:
    """Return the milliseconds per request of sequential ones."""
    seconds = []
    for _ in range(requests):
        started = time.perf_counter()
        await case()
        seconds.append(time.perf_counter() - started)
    return _spread(seconds)


def _spread(seconds: list[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    at = {"p50": 0.5, "p99": 0.99}
    spread = {name: round(1e3 * ordered[int(share * (len(ordered) - 1))], 4) for name, share in at.items()}
    return {**spread, "mean": round(1e3 * sum(ordered) / len(ordered), 4)}


def _show(name: str, figures: dict[str, Any]) -> None:
    table = Table("ms", "p50", "p99", "mean", title=name)
    flat = {**figures, **{f"resolving a name: {kind}": each for kind, each in figures["resolving"].items()}}
    for case, spread in flat.items():
        if isinstance(spread, dict) and "p50" in spread:
            table.add_row(case, *(f"{spread[column]:.3f}" for column in ("p50", "p99", "mean")))
    console.print(table)


if __name__ == "__main__":
    main()
