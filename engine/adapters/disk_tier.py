"""The adapter files on the engine's own disk: a byte budget with eviction of the least recently used.

The rest of the disk belongs to others: files are also evicted while less than MIN_FREE_BYTES of it are free.
"""

import shutil
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

MIN_FREE_BYTES = 1 << 30


class DiskTier:
    """Folders two levels below `directory`, one per adapter. Not thread-safe."""

    def __init__(self, directory: Path, budget: int) -> None:
        self.budget = budget
        self._directory = directory
        self._sizes: OrderedDict[Path, int] = OrderedDict()  # least recently used first
        self._in_use: dict[Path, int] = {}
        self.protected: frozenset[Path] = frozenset()
        """Evicted only after all others."""
        for path in sorted(directory.glob("*/*"), key=lambda p: p.stat().st_mtime):
            self._sizes[path] = _size(path)
        self._shrink()

    @property
    def used(self) -> int:
        return sum(self._sizes.values())

    def __contains__(self, path: Path) -> bool:
        return path in self._sizes

    def __len__(self) -> int:
        return len(self._sizes)

    def add(self, path: Path) -> None:
        """Add a folder that was written to the directory; others may be evicted for it."""
        self._sizes[path] = _size(path)
        with self.reading(path):
            self._shrink()

    @contextmanager
    def reading(self, path: Path) -> Iterator[None]:
        """Protect a folder from eviction while it is being read."""
        self._in_use[path] = self._in_use.get(path, 0) + 1
        if path in self._sizes:
            self._sizes.move_to_end(path)
        try:
            yield
        finally:
            self._in_use[path] -= 1
            if not self._in_use[path]:
                del self._in_use[path]

    def paths(self) -> list[Path]:
        return list(self._sizes)

    def recent(self, count: int) -> list[Path]:
        """Return at most `count` paths, the most recently used first."""
        return list(islice(reversed(self._sizes), count))

    def is_in_use(self, path: Path) -> bool:
        return path in self._in_use

    def remove(self, path: Path) -> None:
        self._sizes.pop(path, None)
        shutil.rmtree(path, ignore_errors=True)

    def _shrink(self) -> None:
        free = shutil.disk_usage(self._directory).free
        excess = max(self.used - self.budget, MIN_FREE_BYTES - free)
        for path in sorted(self._sizes, key=self.protected.__contains__):
            if excess <= 0:
                return
            if path not in self._in_use:
                excess -= self._sizes[path]
                self.remove(path)


def _size(path: Path) -> int:
    return sum(file.stat().st_size for file in path.iterdir())
