"""Runs the tests in several processes that share one collection: `pytest --workers 4`.

pytest-xdist collects the tests in each of its processes, which for this suite takes most of a minute of each. Here one
process imports and collects everything, and forks the others, which therefore have all modules in memory. A test that
ends its process fails; another process runs the rest of its file.
"""

import multiprocessing
import os
import random
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

import pytest
from _pytest.tmpdir import TempPathFactory

_FORK = multiprocessing.get_context("fork")

Group = list[int]
"""Positions of tests that run one after the other in one process."""


class ForkedWorkers:
    """The plugin.

    `scope` returns a key of a test; successive tests of one key run in the same process. `computes` returns whether a
    test computes all the time instead of waiting for other processes: not more of those run at once than there are
    processors, because they would take the caches from each other, which costs a fifth of the time.
    """

    def __init__(self, scope: Callable[[pytest.Item], str], computes: Callable[[pytest.Item], bool]) -> None:
        self._scope = scope
        self._computes = computes

    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Run all tests, unless there are none to run in other processes."""
        count = session.config.getoption("workers")
        if not count or session.config.option.collectonly or session.testsfailed:
            return None
        _Run(session, self._scope, self._computes).run(count)
        return True


@dataclass
class _Worker:
    process: BaseProcess
    connection: Connection
    pending: Group = field(default_factory=list)  # given to it, and not finished
    running: int | None = None
    dismissed: bool = False  # it has been given no tests, and ends


class _Run:
    def __init__(
        self, session: pytest.Session, scope: Callable[[pytest.Item], str], computes: Callable[[pytest.Item], bool]
    ) -> None:
        self._session = session
        self._computing = {at for at, item in enumerate(session.items) if computes(item)}
        self._processors = len(os.sched_getaffinity(0))
        self._hook = session.config.hook
        positions = range(len(session.items))
        self._groups = deque(list(group) for _, group in groupby(positions, lambda at: scope(session.items[at])))
        self._workers: list[_Worker] = []
        self._started = 0
        self._folder = session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]

    def run(self, count: int) -> None:
        """Run the tests in `count` processes. Raise what pytest's own loop raises."""
        reporter = self._session.config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            reporter.showfspath = False  # results of several files come by turns
        try:
            for _ in range(min(count, len(self._groups))):
                self._start()
            while self._workers:
                for connection in wait([worker.connection for worker in self._workers]):
                    self._receive(next(each for each in self._workers if each.connection is connection))
                if self._session.shouldfail:
                    raise self._session.Failed(self._session.shouldfail)
                if self._session.shouldstop:
                    raise self._session.Interrupted(self._session.shouldstop)
        finally:
            for worker in self._workers:
                worker.process.terminate()
                worker.process.join()

    def _start(self) -> None:
        ours, its = _FORK.Pipe()
        self._started += 1
        others = [ours, *(worker.connection for worker in self._workers)]
        folder = self._folder / f"worker-{self._started}"
        process = _FORK.Process(target=_work, args=(self._session, its, others, folder))
        process.start()
        its.close()  # so that the end of the process is the end of the connection
        self._workers.append(_Worker(process, ours))

    def _receive(self, worker: _Worker) -> None:
        kind, content = "end", None
        with suppress(EOFError, ConnectionError):
            kind, content = worker.connection.recv()
        match kind:
            case "end":
                self._end(worker)
            case "next":
                group = self._next_group(worker)
                worker.pending += group
                worker.dismissed = not group
                worker.connection.send(group)
            case "start":
                worker.running = content
                item = self._session.items[content]
                self._hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
            case "report":
                report = self._hook.pytest_report_from_serializable(config=self._session.config, data=content)
                self._hook.pytest_runtest_logreport(report=report)
            case "finish":
                self._finish(worker, content)

    def _next_group(self, worker: _Worker) -> Group:
        """Return the tests that this process runs next, or none, which ends it."""
        others = sum(each is not worker and not self._computing.isdisjoint(each.pending) for each in self._workers)
        for group in self._groups:
            if others < self._processors or group[0] not in self._computing:
                self._groups.remove(group)
                return group
        return []

    def _finish(self, worker: _Worker, position: int) -> None:
        worker.pending.remove(position)
        worker.running = None
        item = self._session.items[position]
        self._hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)

    def _end(self, worker: _Worker) -> None:
        """Report the test that ended its process, if one did, and run the rest of its file in another one."""
        self._workers.remove(worker)
        worker.process.join()
        if worker.running is not None:
            item = self._session.items[worker.running]
            words = f"the test ended its process, with status {worker.process.exitcode}"
            report = pytest.TestReport(item.nodeid, item.location, {}, "failed", words, "call")
            self._hook.pytest_runtest_logreport(report=report)
            self._finish(worker, worker.running)
        if worker.pending:
            self._groups.appendleft(worker.pending)
        if worker.pending or (self._groups and not worker.dismissed):
            self._start()


def _work(session: pytest.Session, connection: Connection, others: Iterable[Connection], folder: Any) -> None:
    """Run the tests that the first process sends. This is the main function of a process."""
    for each in others:
        each.close()
    try:
        _become_independent(session.config, folder)
        session.config.pluginmanager.register(_Reports(session.config, connection))
        for position, following in _with_following(_positions(connection)):
            connection.send(("start", position))
            item = session.items[position]
            nextitem = None if following is None else session.items[following]
            session.config.hook.pytest_runtest_protocol(item=item, nextitem=nextitem)
            connection.send(("finish", position))
        connection.close()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)  # at once, as a test may have left threads


def _become_independent(config: pytest.Config, folder: Any) -> None:
    """Let the process have its own random numbers, temporary files, captured output, and no terminal."""
    random.seed()
    config.option.basetemp = folder
    config._tmp_path_factory = TempPathFactory.from_config(config, _ispytest=True)  # type: ignore[attr-defined]
    capture = config.pluginmanager.get_plugin("capturemanager")
    if capture is not None:
        capture.stop_global_capturing()
        capture.start_global_capturing()
        capture.suspend_global_capture()
    config.get_terminal_writer()._file = open(os.devnull, "w")  # noqa: SIM115


def _positions(connection: Connection) -> Iterator[int]:
    """Ask for tests until there are no more."""
    while True:
        connection.send(("next", None))
        group: Sequence[int] = connection.recv()
        if not group:
            return
        yield from group


def _with_following(positions: Iterator[int]) -> Iterator[tuple[int, int | None]]:
    """Return each position with the one after it: pytest keeps the fixtures that both tests share."""
    current = next(positions, None)
    while current is not None:
        following = next(positions, None)
        yield current, following
        current = following


class _Reports:
    """Sends the reports of a process to the first one."""

    def __init__(self, config: pytest.Config, connection: Connection) -> None:
        self._config = config
        self._connection = connection

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Send a report."""
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._connection.send(("report", data))
