"""Files of usage records, on this machine's disk until the database has them.

Each worker has its own folder in the shared one:

    usage/<worker>/lock                    held (flock) for as long as the worker lives
                   000000000001.segment …  records, one per line; removed once the database has them
                   running                 the counters of running requests (see `live_counters`)
"""

import fcntl
import os
import secrets
from contextlib import suppress
from pathlib import Path

LOCK = "lock"
LIVE_COUNTERS = "running"
OLD_LIVE_COUNTERS = "open"  # of versions whose slots were smaller
_SEGMENT = ".segment"
_SEGMENT_BYTES = 4 << 20
_OPEN = os.O_CREAT | os.O_RDWR | os.O_CLOEXEC


class Spool:
    """A worker's own folder. Calls must not overlap, and all of them may block on the disk."""

    def __init__(self, usage_folder: Path) -> None:
        """Raise OSError."""
        usage_folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.folder, self._lock = _create_folder(usage_folder)
        self._segment: int | None = None
        self._size = 0
        self._number = 0
        self._dirty = False

    def append(self, lines: bytes) -> None:
        """Append lines, which survive this process on return, and a power cut after `sync`.

        Raise OSError; then some of the lines may have been written, the last of them in part.
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
        """Make what was appended survive a power cut. Raise OSError."""
        if self._segment is not None and self._dirty:
            os.fsync(self._segment)
            self._dirty = False

    def seal(self) -> None:
        """End the current segment; later lines go to the next one."""
        if self._segment is not None:
            segment, self._segment = self._segment, None
            os.close(segment)

    def sealed(self) -> list[Path]:
        """Return the complete segments, oldest first."""
        return [path for path in segments_in(self.folder) if self._segment is None or path != self._path()]

    def close(self, *, remove: bool) -> None:
        """Unlock the folder; another process takes over what is left in it."""
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
    """Return a worker's segments, oldest first."""
    return sorted(folder.glob(f"*{_SEGMENT}"))


def remove_worker(folder: Path) -> None:
    """Remove a worker's folder, and last its lock, which the caller holds. A folder with kept segments stays."""
    for name in (LIVE_COUNTERS, OLD_LIVE_COUNTERS):
        (folder / name).unlink(missing_ok=True)
    with suppress(OSError):
        (folder / LOCK).unlink()
        folder.rmdir()


def sync_folder(folder: Path) -> None:
    """Make new files in the folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _create_folder(usage_folder: Path) -> tuple[Path, int]:
    """Create a folder and lock it; try again if a recovery removes it before it is locked."""
    while True:
        folder = usage_folder / f"{os.getpid()}-{secrets.token_hex(4)}"
        folder.mkdir(mode=0o700)
        with suppress(FileNotFoundError):
            lock = os.open(folder / LOCK, _OPEN, 0o600)
            if try_lock(lock) and (folder / LOCK).exists():
                return folder, lock
            os.close(lock)


def try_lock(descriptor: int) -> bool:
    """Lock the file; return False if another process holds the lock."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _write(descriptor: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
