"""Cases of which only some run in the fast set of tests; the others run with the long ones."""

from collections.abc import Container, Iterable
from typing import Any

import pytest


def thinned(cases: Iterable[Any], fast: Container[Any]) -> list[Any]:
    """Return the cases for `parametrize`; those that are not `fast` are marked as long."""
    return [case if case in fast else _long(case) for case in cases]


def _long(case: Any) -> Any:
    values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=pytest.mark.long)
