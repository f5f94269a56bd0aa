"""When requests got their first token: milliseconds from receipt."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Subquery, case, func

QUANTILES = (0.5, 0.9, 0.95, 0.99)


@dataclass(frozen=True)
class FirstToken:
    """Of the requests that got one."""

    mean: float
    p50: int
    p90: int
    p95: int
    p99: int


def at_ranks(ranked: Subquery) -> list[ColumnElement[Any]]:
    """The quantiles of `ms`, whose `place` among `all` is known: nearest ranks, which both databases can find."""
    return [func.min(case((ranked.c.place >= quantile * ranked.c.all, ranked.c.ms))) for quantile in QUANTILES]


def first_token_of(mean: Any, quantiles: "list[Any] | tuple[Any, ...]") -> FirstToken:
    """Postgres' means are decimals."""
    return FirstToken(round(float(mean), 1), *map(int, quantiles))
