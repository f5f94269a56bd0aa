"""How often redis-py may try: once. By itself it would try ten times, a second and more."""

from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff


def only_once() -> Retry:
    """Of a client or a pool of connections."""
    return Retry(NoBackoff(), 0)
