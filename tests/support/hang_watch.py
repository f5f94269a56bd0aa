"""Ends a test process that hangs.

pytest-timeout fails a test after its time limit by a signal, once. A teardown that then waits for ever, or a call of
native code that holds the interpreter, would stop the whole run without a word.
"""

import faulthandler
import os
from collections.abc import Generator

import pytest

_EXTRA_SECONDS = 120  # in addition to the time limit of the test


class HangWatch:
    """Prints all stacks and ends the process when a test's setup and call, or its teardown, exceed the limit.

    `forked_workers` reports the test as failed and goes on in another process.
    """

    def __init__(self) -> None:
        self._stderr = os.dup(2)  # pytest redirects descriptor 2 during tests

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self._start(item)
        try:
            return (yield)
        finally:
            faulthandler.cancel_dump_traceback_later()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> None:
        self._start(item)  # again, because pytest cancels it when a test fails

    def _start(self, item: pytest.Item) -> None:
        limit = _time_limit(item)
        if limit:
            faulthandler.dump_traceback_later(limit + _EXTRA_SECONDS, exit=True, file=self._stderr)


def _time_limit(item: pytest.Item) -> float:
    """Return the limit in seconds that pytest-timeout applies to the test; 0 if there is none."""
    marker = item.get_closest_marker("timeout")
    if marker is not None:
        return float(marker.args[0] if marker.args else marker.kwargs.get("timeout") or 0)
    given = item.config.getoption("timeout")
    return float(given if given is not None else item.config.getini("timeout") or 0)
