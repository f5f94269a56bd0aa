"""Weighted rendezvous hashing: every key has its own order of the engines.

A change of engines moves only the keys whose first engines it concerns, and an engine that returns gets its keys back
(Thaler and Ravishankar, IEEE/ACM Transactions on Networking 6(1), 1998; weights by the logarithmic method of
Schindelhauer and Schomaker, SPAA 2005).
"""

import math
from collections.abc import Mapping
from functools import lru_cache
from hashlib import blake2b

_POINTS = 1 << 64


def ranked(key: str, weights: Mapping[str, float]) -> list[str]:
    """Return the engines in the key's order. The first is each engine in proportion to its weight, over many keys."""
    return sorted(weights, key=lambda engine: (-_score(key, engine, weights[engine]), engine))


@lru_cache(1 << 16)
def _score(key: str, engine: str, weight: float) -> float:
    point = int.from_bytes(blake2b(f"{key}\0{engine}".encode(), digest_size=8).digest())
    return -weight / math.log((point + 0.5) / _POINTS)
