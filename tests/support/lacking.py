"""What tests need of a machine beside Python."""

import os
from typing import NoReturn

import pytest


def lacking(what: str) -> NoReturn:
    """Skip a test that cannot run here; where everything is to be there (CI=true), fail it."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"there is no {what}")
    pytest.skip(f"there is no {what}")
