"""How often adapters were used lately: what is evicted first is what is used least.

Eviction of the least recently used lets each request for a rare adapter evict a frequent one. Counting uses, and
halving the counts from time to time, keeps the frequent ones (TinyLFU, Einziger, Friedman and Manes, ACM Transactions
on Storage 13(4), 2017; without its sketch, since there are only thousands of adapters).
"""

from collections import Counter

from loragate.engine.sequence.request import AdapterKey


class UseFrequency:
    """Counts of the uses of adapters, halved after every `sample` uses. So at most that many adapters are known."""

    def __init__(self, sample: int) -> None:
        self._sample = sample
        self._uses = 0
        self._counts: Counter[AdapterKey] = Counter()

    def record(self, key: AdapterKey) -> None:
        """Record a use."""
        self._counts[key] += 1
        self._uses += 1
        if self._uses >= self._sample:
            self._uses //= 2
            self._counts = Counter({each: count // 2 for each, count in self._counts.items() if count > 1})

    def __getitem__(self, key: AdapterKey | None) -> int:
        """Return the count of an adapter, 0 for none."""
        return 0 if key is None else self._counts[key]
