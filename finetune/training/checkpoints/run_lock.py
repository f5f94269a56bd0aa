"""One process at a time trains in a run's folder."""

import fcntl
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

_LOCK = "lock"  # held until its holder's process ends; it says which that is
_PATIENCE_SECONDS = 60.0
_POLL_SECONDS = 0.1


def acquire_run_lock(folder: Path, patience: float = _PATIENCE_SECONDS) -> None:
    """Waits for one whose worker was killed, and which has not noticed yet. One that never notices, as that of a worker
    which hangs, is killed: what it keeps is whole at every moment. Raises RuntimeError when it is not to be had.
    """
    folder.mkdir(parents=True, exist_ok=True)
    place = folder / _LOCK
    lock = os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    if not _taken(lock, patience):
        _end_holder(place)
        if not _taken(lock, patience):
            raise RuntimeError(f"another process trains in {folder}, and does not end")
    os.ftruncate(lock, 0)
    os.pwrite(lock, str(os.getpid()).encode(), 0)


def _taken(lock: int, patience: float) -> bool:
    end = time.monotonic() + patience
    while True:
        with suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        if time.monotonic() >= end:
            return False
        time.sleep(_POLL_SECONDS)


def _end_holder(place: Path) -> None:
    """If it is a process of this machine that has the lock open: what is written there may be another one's number."""
    with suppress(OSError, ValueError):
        process = Path("/proc") / str(int(place.read_text()))
        if any(_is(descriptor, place) for descriptor in (process / "fd").iterdir()):
            os.kill(int(process.name), signal.SIGKILL)


def _is(descriptor: Path, place: Path) -> bool:
    with suppress(OSError):
        return descriptor.samefile(place)
    return False
