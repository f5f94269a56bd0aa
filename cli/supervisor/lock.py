"""One server per data directory."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from loragate.cli.refusal import Refusal

FILE_NAME = "lock"


@contextmanager
def exclusive(data_dir: Path) -> Iterator[None]:
    """Holds the directory until the block ends or the process dies, whichever way.

    Raises Refusal naming the process that holds it already. The file stays: removing it would let a third process
    lock a new file beside the old one.
    """
    descriptor = os.open(data_dir / FILE_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Refusal(
                f"another loragate server (pid {_holder(descriptor)}) uses {data_dir}: stop it, or choose another "
                "directory with --data-dir or LORAGATE_DATA_DIR"
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _holder(descriptor: int) -> str:
    return os.pread(descriptor, 20, 0).decode(errors="replace").strip() or "unknown"
