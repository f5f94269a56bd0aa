"""Threads that run tenants' jobs in turn, so that a tenant with a thousand jobs delays only its own."""

import os
import sys
import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Callable

Job = Callable[[], None]


class TenantPool:
    """A thread pool. Jobs of one tenant start in the order of submission. A job must not raise. At most `per_tenant` of
    a tenant's jobs run at once, so that others need not wait for a long one. `niceness` is added to the threads' own:
    give some to jobs that compute for long without holding the interpreter.
    """

    def __init__(self, threads: int, name: str, per_tenant: int | None = None, niceness: int = 0) -> None:
        self._changed = threading.Condition()
        self._jobs: OrderedDict[str, deque[Job]] = OrderedDict()  # the tenant whose turn is next comes first
        self._running: Counter[str] = Counter()
        self._per_tenant = threads if per_tenant is None else per_tenant
        self._niceness = niceness
        self._closed = False
        for number in range(threads):
            threading.Thread(target=self._work, name=f"{name}-{number}", daemon=True).start()

    def submit(self, tenant_id: str, job: Job) -> None:
        """Submit a job. Thread-safe."""
        with self._changed:
            self._jobs.setdefault(tenant_id, deque()).append(job)
            self._changed.notify()

    def close(self) -> None:
        """Drop the jobs that have not started; the threads end after their current jobs."""
        with self._changed:
            self._closed = True
            self._jobs.clear()
            self._changed.notify_all()

    def _work(self) -> None:
        _add_niceness(self._niceness)
        while (turn := self._next()) is not None:
            tenant_id, job = turn
            del turn
            job()
            del job  # it may hold much memory while this thread waits for the next one
            self._end(tenant_id)

    def _next(self) -> tuple[str, Job] | None:
        with self._changed:
            while not self._closed:
                tenant_id = next((each for each in self._jobs if self._running[each] < self._per_tenant), None)
                if tenant_id is not None:
                    return tenant_id, self._begin(tenant_id)
                self._changed.wait()
            return None

    def _begin(self, tenant_id: str) -> Job:
        jobs = self._jobs.pop(tenant_id)
        job = jobs.popleft()
        if jobs:
            self._jobs[tenant_id] = jobs
        self._running[tenant_id] += 1
        return job

    def _end(self, tenant_id: str) -> None:
        with self._changed:
            self._running[tenant_id] -= 1
            if not self._running[tenant_id]:
                del self._running[tenant_id]
            self._changed.notify()


def _add_niceness(niceness: int) -> None:
    """Lower the priority of the calling thread. Do nothing except on Linux, where each thread has a priority."""
    if niceness and sys.platform == "linux":
        thread = threading.get_native_id()
        os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + niceness)
