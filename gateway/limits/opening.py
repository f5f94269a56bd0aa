"""The limiter of one process, from its settings."""

from loragate.adapter_store.store import Store
from loragate.gateway.limits.limiter import Limiter
from loragate.gateway.limits.local_book import LocalBook
from loragate.gateway.limits.local_share import LocalShare
from loragate.gateway.limits.metrics import LimitMetrics
from loragate.gateway.limits.redis_book import RedisBook
from loragate.gateway.limits.spent import LedgerSums
from loragate.gateway.redis_link import RedisLink


def open_limiter(redis: RedisLink | None, store: Store, sharers: int, metrics: LimitMetrics) -> Limiter:
    """Without Redis this process keeps the book alone."""
    spent = LedgerSums(store)
    book = LocalBook() if redis is None else RedisBook(redis)
    return Limiter(book, LocalShare(sharers, spent), spent, metrics)
