"""Threads that run tenants' jobs in turn, so that a tenant with a thousand jobs delays only its own."""

import threading
from collections import OrderedDict, deque
from collections.abc import Callable

Job = Callable[[], None]


class TenantPool:
    """A thread pool. Jobs of one tenant run in the order of submission. A job must not raise."""

    def __init__(self, threads: int, name: str) -> None:
        self._changed = threading.Condition()
        self._jobs: OrderedDict[str, deque[Job]] = OrderedDict()  # the tenant whose turn is next comes first
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
        while (job := self._next()) is not None:
            job()

    def _next(self) -> Job | None:
        with self._changed:
            self._changed.wait_for(lambda: self._jobs or self._closed)
            if self._closed:
                return None
            tenant_id, jobs = self._jobs.popitem(last=False)
            job = jobs.popleft()
            if jobs:
                self._jobs[tenant_id] = jobs
            return job
