"""Handling of programs that tests require and the machine lacks."""

import os
from typing import NoReturn

import pytest


def skip_for_missing(what: str) -> NoReturn:
    """Skip a test that cannot run here; fail it in CI (CI=true), where everything must be installed."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"there is no {what}")
    pytest.skip(f"there is no {what}")
