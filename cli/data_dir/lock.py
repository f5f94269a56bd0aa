"""The lock that allows one server per data directory."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from loragate.cli.errors import CliError

FILE_NAME = "lock"


@contextmanager
def lock_data_dir(data_dir: Path) -> Iterator[None]:
    """Lock the directory until the block ends or the process dies.

    Raises CliError with the id of the process that holds the lock. The file is never removed: otherwise a third process
    could lock a new file while the second one holds the old one.
    """
    descriptor = os.open(data_dir / FILE_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
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


def _holder(descriptor: int) -> str:
    return os.pread(descriptor, 20, 0).decode(errors="replace").strip() or "unknown"
