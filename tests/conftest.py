"""What holds for all tests."""

import ast
import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, settings
from interpreted_dot import make_dot_independent_of_position
from redis_server import RedisServer

# No timed assertions: a busy machine is no defect of the code.
settings.register_profile("loragate", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("loragate")

# Before anything imports triton.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")
    make_dot_independent_of_position()

_parse = ast.parse


def _parse_twice(*args: Any, **kwargs: Any) -> ast.AST:
    """CPython 3.11 raises SystemError when another tree is built, by another thread or a gc callback, while it builds
    this one (gh-106905). hypothesis reads the source of whatever it runs, on machines that are busy with much else."""
    try:
        return _parse(*args, **kwargs)
    except SystemError:
        return _parse(*args, **kwargs)


if sys.version_info < (3, 12):
    ast.parse = _parse_twice  # type: ignore[assignment]


@pytest.fixture(scope="session")
def redis_of_session() -> Iterator[RedisServer]:
    server = RedisServer()
    try:
        yield server
    finally:
        server.close()


@pytest.fixture
def redis_server(redis_of_session: RedisServer) -> RedisServer:
    """A real Redis, empty. It runs again, and empty, for the next test, whatever this one does to it."""
    if not redis_of_session.runs:
        redis_of_session.start()
    redis_of_session.go_on()
    redis_of_session.flush()
    return redis_of_session
