"""Adapters in host memory: a byte budget with eviction of the least recently used, never of one that is awaited."""

from collections import OrderedDict

from loragate.engine.layers.patch import HostAdapter
from loragate.engine.sequence.request import AdapterKey


class HostTier:
    """Adapters in host memory. A copy to the device keeps its source alive itself."""

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.used = 0
        self._adapters: OrderedDict[AdapterKey, HostAdapter] = OrderedDict()  # least recently used first
        self._awaited: set[AdapterKey] = set()

    def __len__(self) -> int:
        return len(self._adapters)

    def get(self, key: AdapterKey) -> HostAdapter | None:
        adapter = self._adapters.get(key)
        if adapter is not None:
            self._adapters.move_to_end(key)
        return adapter

    def put(self, key: AdapterKey, adapter: HostAdapter, *, awaited: bool) -> None:
        """Keep an adapter. One that is awaited is kept even beyond the budget, until `end_wait`."""
        assert key not in self._adapters
        self._adapters[key] = adapter
        self.used += adapter.nbytes
        if awaited:
            self._awaited.add(key)
        self._shrink()

    def keys(self) -> list[AdapterKey]:
        """Return the adapters. Thread-safe."""
        return list(self._adapters)

    def ranks(self) -> dict[AdapterKey, int]:
        """Return the rank of each adapter, the least recently used first. May be called from any thread."""
        return {key: adapter.rank for key in self.keys() if (adapter := self._adapters.get(key)) is not None}

    def remove(self, key: AdapterKey) -> None:
        """Remove a retired adapter that is not awaited."""
        assert key not in self._awaited
        adapter = self._adapters.pop(key, None)
        if adapter is not None:
            self.used -= adapter.nbytes

    def end_wait(self, key: AdapterKey) -> None:
        """Mark an adapter as no longer awaited: it went to the device, or its requests ended."""
        self._awaited.discard(key)
        self._shrink()

    @property
    def crowded(self) -> bool:
        """Whether awaited adapters fill the budget, so that reading more would only use memory."""
        return bool(self._awaited) and self.used >= self.budget

    def _shrink(self) -> None:
        for key in [k for k in self._adapters if k not in self._awaited] if self.used > self.budget else []:
            self.used -= self._adapters.pop(key).nbytes
            if self.used <= self.budget:
                return
