"""Threads for work that would block the event loop, in which tenants take turns.

A tenant with many or long pieces of work delays its own: it never has all threads, and others are next.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import Generic, TypeVar

from loragate.engine.runtime.tenant_executor import TenantPool

T = TypeVar("T")

_THREADS = 2
_COMPUTING_SECONDS = 0.002  # before a pause
_PAUSE = 2  # times as long


class TenantThreads:
    """A few threads, of which a tenant has one at a time; with a lower priority where `niceness` is given."""

    def __init__(self, name: str, niceness: int = 0) -> None:
        self._pool = TenantPool(_THREADS, name, per_tenant=1, niceness=niceness)

    async def run(self, tenant_id: str | None, work: Callable[[], T]) -> T:
        """Return what `work` returns; None stands for the operator. Cancelled before its turn, it is never begun."""
        job = _Job(work)
        self._pool.submit(tenant_id or "", job)
        try:
            return await asyncio.wrap_future(job.future)
        except asyncio.CancelledError:
            job.cancel()
            raise

    def close(self) -> None:
        """End the threads after their current work."""
        self._pool.close()


class _Job(Generic[T]):
    def __init__(self, work: Callable[[], T]) -> None:
        self.future: Future[T] = Future()
        self._work: Callable[[], T] | None = work

    def __call__(self) -> None:
        work = self._work
        if not self.future.set_running_or_notify_cancel():
            return
        assert work is not None, "it was cancelled"
        try:
            self.future.set_result(work())
        except BaseException as error:  # for the caller, who awaits it
            self.future.set_exception(error)

    def cancel(self) -> None:
        """Drop the work, with all that it holds in memory, unless it has begun."""
        self.future.cancel()
        self._work = None


def with_pauses(steps: Iterable[T]) -> Iterator[T]:
    """Iterate in a thread over steps that hold the interpreter. Every few milliseconds, pause for twice as long as they
    have computed.

    Otherwise the event loop waits for the interpreter after each of its system calls, and the engine on this machine
    for a processor, for as long as there are steps.
    """
    began = time.thread_time()
    for step in steps:
        yield step
        now = time.thread_time()
        if now - began >= _COMPUTING_SECONDS:
            time.sleep(_PAUSE * (now - began))
            began = now
