"""What holds for all tests."""

import os
from collections.abc import Iterator

import pytest
import torch
from hypothesis import HealthCheck, settings
from redis_server import RedisServer

# No timed assertions: a busy machine is no defect of the code.
settings.register_profile("loragate", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("loragate")

# Before anything imports triton.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")


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
