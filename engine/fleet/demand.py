"""The demand for adapters, measured where their requests pass."""

from collections.abc import Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)

_MAX_KEYS = 1 << 14


class DemandMeter(Generic[Key]):
    """Sums of work by key that fade: after `half_life` seconds an amount counts half.

    Bounded: the smallest are dropped.
    """

    def __init__(self, half_life: float, max_keys: int = _MAX_KEYS) -> None:
        self._half_life = half_life
        self._max_keys = max_keys
        self._amounts: dict[Key, float] = {}  # in units of the moment `_since`
        self._total = 0.0
        self._since = 0.0

    def record(self, key: Key, amount: float, now: float) -> None:
        """Add an amount of work; `now` is in seconds by a clock that does not go back."""
        scaled = amount * self._growth(now)
        self._amounts[key] = self._amounts.get(key, 0.0) + scaled
        self._total += scaled
        if len(self._amounts) > self._max_keys:
            self._drop_smallest()

    def share(self, key: Key) -> float:
        """Return the key's part of all work, 0 to 1."""
        return self._amounts.get(key, 0.0) / self._total if self._total else 0.0

    def shares(self) -> dict[Key, float]:
        """Return the part of each key that is known."""
        return {key: self.share(key) for key in self._amounts}

    def _growth(self, now: float) -> float:
        """Return the factor from amounts of now to those of `_since`, which moves before it becomes too large."""
        exponent = (now - self._since) / self._half_life
        if exponent > 64:
            factor = 0.5**exponent
            self._amounts = {key: amount * factor for key, amount in self._amounts.items()}
            self._total *= factor
            self._since, exponent = now, 0.0
        return float(2.0**exponent)

    def _drop_smallest(self) -> None:
        kept = sorted(self._amounts.items(), key=lambda item: -item[1])[: self._max_keys // 2]
        self._amounts = dict(kept)
