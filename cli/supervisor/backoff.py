"""How long a child that died waits before it is started again."""

from dataclasses import dataclass


@dataclass
class Backoff:
    """Nothing the first time, then doubling from `first` to `longest` seconds; forgiven after `stable` seconds."""

    first: float = 0.25
    longest: float = 10.0
    stable: float = 30.0
    _deaths: int = 0

    def delay(self, lived: float) -> float:
        """Seconds to wait, after a life of `lived` seconds."""
        self._deaths = 1 if lived >= self.stable else self._deaths + 1
        if self._deaths == 1:
            return 0.0
        return min(self.longest, self.first * 2.0 ** min(self._deaths - 2, 32))
