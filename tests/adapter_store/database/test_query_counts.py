"""Each read takes one transaction and a fixed number of statements, however much the store contains."""

from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import event

from loragate.adapter_store.adapters.adapter import AliasTarget
from loragate.adapter_store.adapters.desired_state import Placement, PlacementBounds
from loragate.adapter_store.adapters.filter import AdapterFilter


class Counts:
    """Counts what was sent to the database."""

    def __init__(self) -> None:
        self.statements = self.transactions = 0

    def take(self) -> tuple[int, int]:
        taken = self.transactions, self.statements
        self.statements = self.transactions = 0
        return taken


@pytest.fixture
def counts(world: Any) -> Iterator[Counts]:
    engine, counts = world.store._database._engine.sync_engine, Counts()

    def statement(connection: Any, cursor: Any, text: str, *rest: Any) -> None:
        counts.statements += not text.startswith("BEGIN")

    def begin(connection: Any) -> None:
        counts.transactions += 1

    event.listen(engine, "before_cursor_execute", statement)
    event.listen(engine, "begin", begin)
    yield counts
    event.remove(engine, "before_cursor_execute", statement)
    event.remove(engine, "begin", begin)


async def _grow(world: Any, start: int, end: int) -> None:
    """Add adapters with several versions, aliases and tags."""
    for number in range(start, end):
        for version in range(2):
            await world.publish(f"a{number}", tags=["x", "y"], alias=("default", "canary")[version])
    async with world.adapters(write=True) as adapters:
        await adapters.set_alias("a0", "split", [AliasTarget(1), AliasTarget(2)])


async def test_the_number_of_statements_does_not_grow_with_the_data(world: Any, counts: Counts) -> None:
    async def of_tenant(ask: Callable[[Any], Awaitable[Any]]) -> tuple[int, int]:
        counts.take()
        async with world.adapters() as adapters:
            await ask(adapters)
        return counts.take()

    async def of_operator(ask: Callable[[Any], Awaitable[Any]]) -> tuple[int, int]:
        counts.take()
        async with world.store.admin() as admin:
            await ask(admin)
        return counts.take()

    async def all_counts() -> dict[str, tuple[int, int]]:
        async with world.adapters() as adapters:
            second = (await adapters.get("a1")).id
        wanted = AdapterFilter("a", ("x", "y"))
        return {
            "list": await of_tenant(lambda adapters: adapters.list()),
            "its next page": await of_tenant(lambda adapters: adapters.list(after=second)),
            "search": await of_tenant(lambda adapters: adapters.list(wanted)),
            "get": await of_tenant(lambda adapters: adapters.get("a0")),
            "versions": await of_tenant(lambda adapters: adapters.versions("a0")),
            "route": await of_tenant(lambda adapters: adapters.route("a0", alias="split")),
            "all tenants'": await of_operator(lambda admin: admin.published.list()),
            "all tenants' search": await of_operator(lambda admin: admin.published.list(wanted, after=second)),
            "kept": await of_operator(lambda admin: admin.desired.placed()),
        }

    await _grow(world, 0, 2)
    few = await all_counts()
    await _grow(world, 2, 7)
    async with world.store.admin(write=True) as admin:
        for adapter in await admin.published.list():
            await admin.desired.place(adapter.id, Placement.PREFETCHED, PlacementBounds())
    assert await all_counts() == few
    assert few == {
        "list": (1, 1),
        "its next page": (1, 1),
        "search": (1, 1),
        "get": (1, 1),
        "versions": (1, 2),
        "route": (1, 1),
        "all tenants'": (1, 1),
        "all tenants' search": (1, 1),
        "kept": (1, 1),
    }


async def test_no_connection_is_held_after_a_scope(world: Any) -> None:
    await world.publish("poet")
    pool = world.store._database._engine.sync_engine.pool
    async with world.adapters() as adapters:
        assert pool.checkedout() == 0, "before the first statement"
        await adapters.list()
        assert pool.checkedout() == 1
    assert pool.checkedout() == 0
