"""Folders that are either complete or absent, even if their creation is interrupted."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_UNFINISHED = ".unfinished"


@contextmanager
def atomic_folder(directory: Path) -> Iterator[Path]:
    """Yield a folder to write to. If the block succeeds, it is renamed to `directory`, otherwise removed.

    The caller holds `exclusive_lock`, so leftovers of an earlier, killed process can be removed.
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
def exclusive_lock(directory: Path) -> Iterator[None]:
    """Wait until no other process builds in `directory`, then hold its lock."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _sync(path: Path) -> None:
    """Sync a path to disk: otherwise the rename could survive a crash of the machine without the renamed bytes."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
