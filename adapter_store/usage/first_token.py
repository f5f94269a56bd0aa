"""Times to first token, in milliseconds from receipt of a request."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Subquery, case, func

QUANTILES = (0.5, 0.9, 0.95, 0.99)


@dataclass(frozen=True)
class FirstToken:
    """Times to first token of the requests that got a token."""

    mean: float
    p50: int
    p90: int
    p95: int
    p99: int


def at_ranks(ranked: Subquery) -> list[ColumnElement[Any]]:
    """Return the quantiles of `ms`, given its `place` among `all`, as nearest ranks, which both databases know."""
    return [func.min(case((ranked.c.place >= quantile * ranked.c.all, ranked.c.ms))) for quantile in QUANTILES]


def first_token_of(mean: Any, quantiles: "list[Any] | tuple[Any, ...]") -> FirstToken:
    """Return the times in a row; Postgres' means are decimals."""
    return FirstToken(round(float(mean), 1), *map(int, quantiles))
