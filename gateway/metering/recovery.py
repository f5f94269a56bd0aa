"""Recovery of the usage that dead workers left behind."""

import os
from contextlib import suppress
from pathlib import Path

from loragate.gateway.metering.live_counters import InterruptedRequest, interrupted_requests
from loragate.gateway.metering.spool import LOCK, remove_worker, segments_in, try_lock


class DeadWorker:
    """A dead worker's folder, locked until it is released or this process ends.

    Its segments are settled first: the record of an ended request takes precedence over its live counters.
    """

    def __init__(self, folder: Path, lock: int) -> None:
        self._folder = folder
        self._lock = lock

    def segments(self) -> list[Path]:
        return segments_in(self._folder)

    def interrupted_requests(self) -> list[InterruptedRequest]:
        """Return the requests that the worker was serving when it died."""
        return interrupted_requests(self._folder)

    def remove(self) -> None:
        """Remove the folder, once the database has everything."""
        remove_worker(self._folder)

    def release(self) -> None:
        """Unlock the folder, so that another process can take it over."""
        os.close(self._lock)


def lock_dead_workers(usage_folder: Path, own: Path) -> list[DeadWorker]:
    """Return the dead workers that no other process is recovering, locked until they are released."""
    others = (path for path in usage_folder.iterdir() if path.is_dir() and path != own)
    return [DeadWorker(folder, lock) for folder in others if (lock := _try_lock_folder(folder)) is not None]


def _try_lock_folder(folder: Path) -> int | None:
    try:
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        with suppress(OSError):
            folder.rmdir()  # of a worker that died while starting or stopping
        return None
    if try_lock(lock):
        return lock
    os.close(lock)
    return None
