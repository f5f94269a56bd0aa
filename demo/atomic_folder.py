"""Folders that are either complete or absent, whatever interrupts their making."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_UNFINISHED = ".unfinished"


@contextmanager
def published(directory: Path) -> Iterator[Path]:
    """A folder to write to; when the block ends without an error it is renamed to `directory`, else removed.

    Whoever holds the lock of `exclusive` is alone here, so what an earlier, killed process left is cleared.
    """
    unfinished = directory.with_name(directory.name + _UNFINISHED)
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    try:
        yield unfinished
        for path in [*unfinished.iterdir(), unfinished]:
            _sync(path)
        unfinished.rename(directory)
        _sync(directory.parent)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


@contextmanager
def exclusive(directory: Path) -> Iterator[None]:
    """Waits until no other process builds in `directory`."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _sync(path: Path) -> None:
    """A rename can survive a crash of the machine that the bytes renamed did not."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
