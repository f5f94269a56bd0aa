"""The limiter of one process, from its settings."""

from loragate.adapter_store.store import Store
from loragate.gateway.limits.fallback import LocalShare
from loragate.gateway.limits.limiter import Limiter
from loragate.gateway.limits.memory_backend import LocalBook
from loragate.gateway.limits.metrics import LimitMetrics
from loragate.gateway.limits.redis_backend import RedisBook
from loragate.gateway.limits.usage_totals import LedgerSums
from loragate.gateway.resilience.redis import RedisLink


def open_limiter(redis: RedisLink | None, store: Store, sharers: int, metrics: LimitMetrics) -> Limiter:
    """Without Redis this process keeps the book alone."""
    spent = LedgerSums(store)
    book = LocalBook() if redis is None else RedisBook(redis)
    return Limiter(book, LocalShare(sharers, spent), spent, metrics)
