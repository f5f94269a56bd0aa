"""Usage records on this machine's disk until the database has them.

One folder a worker, under the workers' common one:

    usage/<worker>/lock              held (flock) for as long as the worker lives
                   000000000001.segment …  records, line by line; removed once the database has them
                   open     what running requests were told so far (see `open_calls`)
"""

import fcntl
import os
import secrets
from contextlib import suppress
from pathlib import Path

LOCK = "lock"
OPEN_CALLS = "open"
_SEGMENT = ".segment"
_SEGMENT_BYTES = 4 << 20
_OPEN = os.O_CREAT | os.O_RDWR | os.O_CLOEXEC


class Spool:
    """A worker's own folder. Calls must not overlap; all of them may block on the disk."""

    def __init__(self, usage_folder: Path) -> None:
        """Raises OSError."""
        usage_folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.folder, self._lock = _claimed(usage_folder)
        self._segment: int | None = None
        self._size = 0
        self._number = 0
        self._dirty = False

    def append(self, lines: bytes) -> None:
        """Survives this process once it returns, and the machine's next power cut after `sync`.

        Raises OSError; then some of the lines may have been written, the last of them in part.
        """
        if self._segment is None:
            self._segment = self._next_segment()
        self._dirty = True
        try:
            _write(self._segment, lines)
        except OSError:
            self.seal()  # so that a torn line is always the last of its file
            raise
        self._size += len(lines)
        if self._size >= _SEGMENT_BYTES:
            self.sync()
            self.seal()

    def sync(self) -> None:
        """Raises OSError."""
        if self._segment is not None and self._dirty:
            os.fsync(self._segment)
            self._dirty = False

    def seal(self) -> None:
        """What was appended so far is a segment; what comes goes to the next one."""
        if self._segment is not None:
            segment, self._segment = self._segment, None
            os.close(segment)

    def sealed(self) -> list[Path]:
        """Oldest first."""
        return [path for path in segments_in(self.folder) if self._segment is None or path != self._path()]

    def close(self, *, remove: bool) -> None:
        """Gives the folder up: whoever finds something in it takes it over."""
        self.seal()
        if remove and not segments_in(self.folder):
            remove_worker(self.folder)
        os.close(self._lock)

    def _next_segment(self) -> int:
        self._number += 1
        segment = os.open(self._path(), _OPEN | os.O_EXCL | os.O_APPEND, 0o600)
        self._size = 0
        sync_folder(self.folder)
        return segment

    def _path(self) -> Path:
        return self.folder / f"{self._number:012d}{_SEGMENT}"


def segments_in(folder: Path) -> list[Path]:
    """A worker's segments, oldest first."""
    return sorted(folder.glob(f"*{_SEGMENT}"))


def remove_worker(folder: Path) -> None:
    """A worker's empty folder; its lock, held by the caller, last. What somebody set aside in it keeps it there."""
    (folder / OPEN_CALLS).unlink(missing_ok=True)
    with suppress(OSError):
        (folder / LOCK).unlink()
        folder.rmdir()


def sync_folder(folder: Path) -> None:
    """Makes new files in it survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _claimed(usage_folder: Path) -> tuple[Path, int]:
    """A new folder and its lock. Somebody who looks for dead workers may take it for one, before it is locked."""
    while True:
        folder = usage_folder / f"{os.getpid()}-{secrets.token_hex(4)}"
        folder.mkdir(mode=0o700)
        with suppress(FileNotFoundError):
            lock = os.open(folder / LOCK, _OPEN, 0o600)
            if try_lock(lock) and (folder / LOCK).exists():
                return folder, lock
            os.close(lock)


def try_lock(descriptor: int) -> bool:
    """Whether nobody else holds it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _write(descriptor: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
