"""Durability on a local disk, so that bytes survive a power cut; object stores need nothing."""

import errno
import os
from typing import BinaryIO

from fsspec import AbstractFileSystem
from fsspec.implementations.local import LocalFileOpener, LocalFileSystem

_UNSUPPORTED = frozenset({errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS})


def reserve(file: BinaryIO, size: int, min_free: int = 0) -> None:
    """Reserve disk space for `size` bytes of a local file, where the file system supports it.

    Raise OSError if that would leave less than `min_free` bytes of the disk.
    """
    if size <= 0 or not _is_local(file):
        return
    if min_free and free_bytes(file) - size < min_free:
        raise OSError(errno.ENOSPC, f"{min_free} bytes are kept free")
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(file.fileno(), 0, size)
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                raise


def free_bytes(file: BinaryIO) -> int:
    """Return the free space of the disk on which the file is."""
    status = os.fstatvfs(file.fileno())
    return status.f_bavail * status.f_frsize


def make_durable(file: BinaryIO) -> None:
    """Flush an open file to the disk."""
    if isinstance(file, LocalFileOpener):
        file.flush()
        os.fsync(file.fileno())


def sync_directory(fs: AbstractFileSystem, directory: str) -> None:
    """Make renames into `directory` durable."""
    if isinstance(fs, LocalFileSystem):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _is_local(file: BinaryIO) -> bool:
    return isinstance(file, LocalFileOpener)
