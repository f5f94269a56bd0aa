"""Durability on a local disk, so that bytes survive a power cut; object stores need nothing."""

import errno
import os
from io import BufferedRandom
from typing import BinaryIO

from fsspec import AbstractFileSystem
from fsspec.implementations.local import LocalFileOpener, LocalFileSystem

_UNSUPPORTED = frozenset({errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS})


def reserve(file: BinaryIO, size: int) -> None:
    """Reserve disk space for `size` bytes, where the file system supports it. Raises OSError if there is too little."""
    if size > 0 and hasattr(os, "posix_fallocate") and _is_local(file):
        try:
            os.posix_fallocate(file.fileno(), 0, size)
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                raise


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
    return isinstance(file, LocalFileOpener | BufferedRandom)
