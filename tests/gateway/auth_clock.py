"""A clock for the cache of keys."""

from dataclasses import dataclass


@dataclass
class Clock:
    """Replaces `elapsed`: cache entries expire only when a test moves it."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now
