"""Which adapters' files the engine keeps on its own disk: a byte budget, the least recently used out first."""

import shutil
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path


class DiskTier:
    """Folders two levels under `directory`, one for each adapter. To be used from one thread."""

    def __init__(self, directory: Path, budget: int) -> None:
        self.budget = budget
        self._sizes: OrderedDict[Path, int] = OrderedDict()  # least recently used first
        self._in_use: dict[Path, int] = {}
        self.kept: frozenset[Path] = frozenset()
        """The last to leave."""
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
        """A folder was put here. Others may leave for it."""
        self._sizes[path] = _size(path)
        with self.reading(path):
            self._shrink()

    @contextmanager
    def reading(self, path: Path) -> Iterator[None]:
        """Keep a folder while somebody reads in it."""
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
        excess = self.used - self.budget
        for path in sorted(self._sizes, key=self.kept.__contains__):
            if excess <= 0:
                return
            if path not in self._in_use:
                excess -= self._sizes[path]
                self.remove(path)


def _size(path: Path) -> int:
    return sum(file.stat().st_size for file in path.iterdir())
