"""The lock that allows one server per data directory."""

import fcntl
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from loragate.cli.errors import CliError

FILE_NAME = "lock"
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_ATTEMPTS = 3
_PAUSE_SECONDS = 0.05


@contextmanager
def lock_data_dir(data_dir: Path) -> Iterator[None]:
    """Lock the directory until the block ends or the process dies.

    Raise CliError with the id of the process that holds the lock. The file is never removed: otherwise a third process
    could lock a new file while the second one holds the old one.
    """
    descriptor = os.open(data_dir / FILE_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            _lock(descriptor)
        except BlockingIOError:
            raise CliError(
                f"another loragate server (pid {_holder(descriptor)}) is using {data_dir}: stop it, or choose another "
                "directory with --data-dir or LORAGATE_DATA_DIR"
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(descriptor)


def is_locked(data_dir: Path) -> bool:
    """Return whether a process of this user or of root holds the lock. No other user can open the file, unless its mode
    was changed; then it counts as not locked."""
    try:
        descriptor = os.open(data_dir / FILE_NAME, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        if os.fstat(descriptor).st_mode & _OTHERS:
            return False
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _lock(descriptor: int) -> None:
    """Lock the file. Raise BlockingIOError if it stays locked: a command may hold it for a moment."""
    for _ in range(_ATTEMPTS):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            time.sleep(_PAUSE_SECONDS)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _holder(descriptor: int) -> str:
    return os.pread(descriptor, 20, 0).decode(errors="replace").strip() or "unknown"
