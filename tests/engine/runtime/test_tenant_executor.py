"""Threads of which a tenant has some at a time."""

import os
import sys
import threading

import pytest

from loragate.engine.runtime.tenant_executor import TenantPool


def test_a_tenants_long_job_holds_one_of_the_threads_that_it_may_have() -> None:
    pool, go, done = TenantPool(2, "test", per_tenant=1), threading.Event(), threading.Event()
    running, most, finished = 0, 0, 0
    lock = threading.Lock()

    def long() -> None:
        nonlocal running, most, finished
        with lock:
            running += 1
            most = max(most, running)
        go.wait(30)
        with lock:
            running -= 1
            finished += 1
            if finished == 5:
                done.set()

    for _ in range(5):
        pool.submit("flood", long)
    other = threading.Event()
    pool.submit("other", other.set)
    assert other.wait(30), "the other thread is free for it"
    go.set()
    assert done.wait(30)
    assert most == 1
    pool.close()


@pytest.mark.skipif(sys.platform != "linux", reason="threads have no priorities of their own")
def test_its_threads_may_have_a_lower_priority() -> None:
    before, found, done = os.getpriority(os.PRIO_PROCESS, 0), list[int](), threading.Event()
    pool = TenantPool(1, "test", niceness=3)
    pool.submit(
        "tenant", lambda: (found.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id())), done.set())
    )
    assert done.wait(30)
    pool.close()
    assert found == [min(19, before + 3)]
    assert os.getpriority(os.PRIO_PROCESS, threading.main_thread().native_id or 0) == before
