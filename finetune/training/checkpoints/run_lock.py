"""A lock that lets only one process at a time train in a run's folder."""

import fcntl
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

_LOCK = "lock"  # held until its holder exits; contains the holder's process id
_TIMEOUT_SECONDS = 60.0
_POLL_SECONDS = 0.1


def acquire_run_lock(folder: Path, timeout: float = _TIMEOUT_SECONDS) -> None:
    """Acquire the lock until this process exits. Raise RuntimeError if that fails.

    A holder whose worker was killed may not have noticed yet and is waited for. One that does not end in time, for
    example because its worker hangs, is killed: its files are complete at any moment.
    """
    folder.mkdir(parents=True, exist_ok=True)
    place = folder / _LOCK
    lock = os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    if not _try_lock(lock, timeout):
        _kill_holder(place)
        if not _try_lock(lock, timeout):
            raise RuntimeError(f"another process trains in {folder} and does not end")
    os.ftruncate(lock, 0)
    os.pwrite(lock, str(os.getpid()).encode(), 0)


def _try_lock(lock: int, timeout: float) -> bool:
    end = time.monotonic() + timeout
    while True:
        with suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        if time.monotonic() >= end:
            return False
        time.sleep(_POLL_SECONDS)


def _kill_holder(place: Path) -> None:
    """Kill the process recorded in the lock file if it has the file open on this machine; otherwise the number may be
    another process's, in a sandbox even our own."""
    with suppress(OSError, ValueError):
        process = Path("/proc") / str(int(place.read_text()))
        if int(process.name) == os.getpid():
            return
        if any(_same_file(descriptor, place) for descriptor in (process / "fd").iterdir()):
            os.kill(int(process.name), signal.SIGKILL)


def _same_file(descriptor: Path, place: Path) -> bool:
    with suppress(OSError):
        return descriptor.samefile(place)
    return False
