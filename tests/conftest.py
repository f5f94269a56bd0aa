"""Settings and fixtures for all tests."""

import ast
import gc
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from compiled_once import compile_once
from forked_workers import ForkedWorkers
from hang_watch import HangWatch
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture.providers import _get_local_constants
from interpreted_dot import make_dot_independent_of_position
from quick_interpreter import make_interpreter_quick
from redis_server import RedisServer

_TESTS = Path(__file__).parent

# No deadlines: a busy machine is not a defect of the code.
settings.register_profile("loragate", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("loragate")

# This must precede the first import of triton.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")
    make_dot_independent_of_position()
    make_interpreter_quick()

# Shells start jobs in the background with SIGINT ignored, and the processes of the tests would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

_parse = ast.parse


def _parse_twice(*args: Any, **kwargs: Any) -> ast.AST:
    """Parse again after a SystemError.

    CPython 3.11 raises it when another thread or a gc callback builds a tree at the same time (gh-106905). hypothesis
    parses the source of each test that it runs.
    """
    try:
        return _parse(*args, **kwargs)
    except SystemError:
        return _parse(*args, **kwargs)


if sys.version_info < (3, 12):
    ast.parse = _parse_twice  # type: ignore[assignment]

compile_once()


gc.disable()  # until all tests are imported: imports create no garbage, and collecting takes a fifth of their time


# While the tests are collected by one processor, the other compiles what each worker would compile in its first test.
_COMPILE = "from loragate.kernels.cpu.compile_all import compile_loops; compile_loops()"
_COMPILING = pytest.StashKey[subprocess.Popen[bytes]]()


def _prepare_for_all_workers(compiling: subprocess.Popen[bytes]) -> None:
    """Do once what takes seconds of each worker: load the compiled loops, and find the numbers and strings in the code
    that hypothesis tries as inputs."""
    from loragate.kernels.cpu.compile_all import compile_loops

    assert compiling.wait() == 0, "the loops do not compile"
    compile_loops()
    _get_local_constants()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--workers", type=int, default=0, help="run the tests in so many processes")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(HangWatch())
    config.pluginmanager.register(ForkedWorkers(_scope, _computes))
    if config.getoption("workers"):
        config.stash[_COMPILING] = subprocess.Popen([sys.executable, "-c", _COMPILE])


def pytest_collection_finish(session: pytest.Session) -> None:
    compiling = session.config.stash.get(_COMPILING, None)
    if compiling is not None:
        _prepare_for_all_workers(compiling)
    gc.freeze()
    gc.enable()


# The folders with the longest tests, which start first: otherwise one process runs them at the end, alone.
_FIRST = ("e2e", "finetune", "panel", "cli", "faults", "attacks", "demo")
# The folders whose tests compute and do not wait for other processes. They run last, in fewer processes.
_COMPUTING = ("engine", "trainer", "kernels", "peft_format")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def rank(item: pytest.Item) -> int:
        folder = _folder(item)
        if folder in _FIRST:
            return _FIRST.index(folder)
        return len(_FIRST) + (1 + _COMPUTING.index(folder) if folder in _COMPUTING else 0)

    items.sort(key=rank)


def _folder(item: pytest.Item) -> str:
    """Return the folder in tests/ that has the test."""
    return item.path.relative_to(_TESTS).parts[0]


def _computes(item: pytest.Item) -> bool:
    return _folder(item) in _COMPUTING


def _scope(item: pytest.Item) -> str:
    """Return the file of a test, and one key for all of tests/e2e, whose tests share a server."""
    file = item.nodeid.partition("::")[0]
    return "tests/e2e" if file.startswith("tests/e2e/") else file


@pytest.fixture(scope="session")
def redis_of_session() -> Iterator[RedisServer]:
    server = RedisServer()
    try:
        yield server
    finally:
        server.close()


@pytest.fixture
def redis_server(redis_of_session: RedisServer) -> RedisServer:
    """Return a real, empty Redis. Tests may stop, pause or fill it: it is restored before each test."""
    if not redis_of_session.runs:
        redis_of_session.start()
    redis_of_session.resume()
    redis_of_session.flush()
    return redis_of_session
