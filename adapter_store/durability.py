"""What a local disk needs before bytes survive a power cut; an object store's write needs nothing."""

import os
from typing import BinaryIO

from fsspec import AbstractFileSystem
from fsspec.implementations.local import LocalFileOpener, LocalFileSystem


def make_durable(file: BinaryIO) -> None:
    """Flushes an open file to the disk."""
    if isinstance(file, LocalFileOpener):
        file.flush()
        os.fsync(file.fileno())


def sync_directory(fs: AbstractFileSystem, directory: str) -> None:
    """Makes renames into `directory` survive."""
    if isinstance(fs, LocalFileSystem):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
