"""100,000 stored responses of one tenant: what reads and removes them takes bounded memory and few statements."""

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from sqlalchemy import event, insert, update

from loragate.adapter_store.database.clock import current_time, database_now
from loragate.adapter_store.responses.response import MAX_CHAIN
from loragate.adapter_store.responses.rows import request_place, response_place
from loragate.adapter_store.responses.sealing import TenantSeal
from loragate.adapter_store.tables.responses import StoredResponseRow
from loragate.gateway.background.response_metrics import ResponseMetrics
from loragate.gateway.background.responses import maintain

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

COUNT = 100_000
CHAIN = MAX_CHAIN - 1
TEXT = "x" * 1000
MIB = 1 << 20


class Effort:
    """The statements sent to the database, and the peak of what Python allocated meanwhile."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.peak_bytes = 0

    @property
    def statements(self) -> int:
        return len(self.texts)


@contextmanager
def measured(world: Any) -> Iterator[Effort]:
    engine, effort = world.store._database._engine.sync_engine, Effort()

    def statement(connection: Any, cursor: Any, text: str, *rest: Any) -> None:
        effort.texts += [] if text.startswith("BEGIN") else [text]

    event.listen(engine, "before_cursor_execute", statement)
    tracemalloc.start()
    try:
        yield effort
        effort.peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        event.remove(engine, "before_cursor_execute", statement)


def row(number: int, seal: TenantSeal, now: Any) -> dict[str, Any]:
    """Return a row: all continue the first response but the last ones, which are a chain."""
    name, in_chain = f"resp_{number}", number > COUNT - CHAIN
    previous = None if number == 1 else f"resp_{number - 1}" if in_chain and number > COUNT - CHAIN + 1 else "resp_1"
    request = seal.seal({"items": [{"id": f"msg_{number}", "content": TEXT}], "request": {}}, request_place(name))
    document = seal.seal({"id": name, "output": [{"id": f"out_{number}", "text": TEXT}]}, response_place(name))
    return {
        "id": name,
        "key_id": "key1",
        "model": "poet",
        "status": "completed",
        "background": False,
        "streamed": False,
        "previous_id": previous,
        "chain_id": "resp_1",
        "depth": 1,
        "secret_id": seal.secret_id,
        "sealed_request": request,
        "sealed_response": document,
        "size_bytes": len(request) + len(document),
        "next_event": 0,
        "attempts": 1,
        "created_at": now + timedelta(microseconds=number),
        "finished_at": now,
    }


@pytest.fixture
async def many(world: Any) -> Any:
    """A tenant with so many responses of two kilobytes, 200 MB together."""
    seal = TenantSeal(world.store._secret_keys, world.acme.id)
    async with world.store._database.tenant(world.acme.id, write=True) as session:
        now = await current_time(session)
        for start in range(1, COUNT + 1, 2000):
            rows = [row(number, seal, now) for number in range(start, start + 2000)]
            await session.execute(insert(StoredResponseRow), rows)
    return world


async def test_lists_chains_and_retention_are_bounded(many: Any) -> None:
    store, tenant_id = many.store, many.acme.id
    with measured(many) as effort:
        after, seen = None, 0
        while True:
            async with store.tenant(tenant_id) as scope:
                page = await scope.responses.list(after=after, limit=100)
            seen += len(page)
            after = page.items[-1].id
            if not page.has_more or seen >= 10_000:
                break
    assert seen == 10_000
    assert effort.statements <= 2 * 100
    assert not any("sealed" in text for text in effort.texts), "a page of a list reads no contents"
    assert effort.peak_bytes < 8 * MIB

    with measured(many) as effort:
        async with store.tenant(tenant_id) as scope:
            items = await scope.responses.context(f"resp_{COUNT - 1}")
    assert len(items) == 2 * CHAIN
    assert [items[0]["id"], items[-1]["id"]] == ["msg_1", f"out_{COUNT - 1}"]
    assert effort.statements == 3
    assert effort.peak_bytes < 8 * MIB

    with measured(many) as effort:
        async with store.admin() as admin:
            use = await admin.response_queue.use()
    assert (use.responses, effort.statements) == (COUNT, 2)

    async with store._database.operator(write=True) as session:
        await session.execute(update(StoredResponseRow).values(expires_at=database_now()))
    with measured(many) as effort:
        await maintain(store, ResponseMetrics(CollectorRegistry()))
    assert effort.statements < 6 * (COUNT / 1000 + 4)
    assert effort.peak_bytes < 16 * MIB
    async with store.admin() as admin:
        assert (await admin.response_queue.use()).responses == 0
