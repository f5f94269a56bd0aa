"""Workers that died and left usage behind."""

import os
from contextlib import suppress
from pathlib import Path

from loragate.adapter_store.usage.record import UsageRecord
from loragate.gateway.metering.live_counters import left_open
from loragate.gateway.metering.spool import LOCK, remove_worker, segments_in, try_lock


class DeadWorker:
    """A dead worker's folder, ours for as long as we live or until it is released.

    Its segments go to the database first: a record there goes before what its request had been told when it was open.
    """

    def __init__(self, folder: Path, lock: int) -> None:
        self._folder = folder
        self._lock = lock

    def segments(self) -> list[Path]:
        return segments_in(self._folder)

    def left_open(self) -> list[UsageRecord]:
        """Records of requests that it was serving, as of its death."""
        return left_open(self._folder)

    def remove(self) -> None:
        """Once the database has everything."""
        remove_worker(self._folder)

    def release(self) -> None:
        """Whoever comes next may have it."""
        os.close(self._lock)


def dead_workers(usage_folder: Path, own: Path) -> list[DeadWorker]:
    """Those that nobody else looks after now. They are ours until they are released."""
    others = (path for path in usage_folder.iterdir() if path.is_dir() and path != own)
    return [DeadWorker(folder, lock) for folder in others if (lock := _lock_of(folder)) is not None]


def _lock_of(folder: Path) -> int | None:
    try:
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        with suppress(OSError):
            folder.rmdir()  # of one that died while it came or went
        return None
    if try_lock(lock):
        return lock
    os.close(lock)
    return None
