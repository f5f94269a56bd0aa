"""Threads in which tenants take turns, as coroutines use them."""

import asyncio
import gc
import threading
import weakref
from collections.abc import Iterator

import pytest

from loragate.gateway.resilience.tenant_threads import TenantThreads


class Body:
    """Something large."""


@pytest.fixture
def threads() -> Iterator[TenantThreads]:
    made = TenantThreads("test")
    yield made
    made.close()


async def test_results_and_errors_are_the_callers(threads: TenantThreads) -> None:
    assert await threads.run("a", lambda: 1) == 1
    with pytest.raises(ZeroDivisionError):
        await threads.run(None, lambda: 1 // 0)
    assert await threads.run(None, lambda: 2) == 2


async def test_cancelled_work_is_neither_begun_nor_kept(threads: TenantThreads) -> None:
    """It waits behind another piece of work, and may hold megabytes."""
    go, done = threading.Event(), list[str]()
    first = asyncio.create_task(threads.run("a", lambda: go.wait(30)))
    body = Body()
    kept = weakref.ref(body)
    second = asyncio.create_task(threads.run("a", lambda body=body: done.append(str(body))))
    del body
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.wait((second,))
    del second
    gc.collect()
    assert kept() is None
    go.set()
    assert await first
    await threads.run("a", lambda: None)
    assert done == []
