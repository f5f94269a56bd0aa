"""Files as blobs need them: written completely or not at all, and durable.

This implementation is for local disks and every fsspec file system that can rename: it writes a temporary file,
flushes it to the disk and renames it. `s3.py` is for object stores. All calls block and raise OSError only: run them
in threads.
"""

import asyncio
import secrets
import shutil
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from datetime import datetime
from typing import Any, BinaryIO

from fsspec import AbstractFileSystem

from loragate.adapter_store.blobs.durability import make_durable, reserve, sync_directory

CHUNK_BYTES = 1 << 20


class Objects:
    """One file system. Paths are absolute, without the protocol."""

    def __init__(self, fs: AbstractFileSystem, min_free: int = 0) -> None:
        self._fs = fs
        self._min_free = min_free  # bytes of a local disk that are left to others

    def exists(self, path: str) -> bool:
        """Return whether the file exists; unlike fsspec's, this raises OSError if that is unknown."""
        try:
            self._fs.info(path)
        except FileNotFoundError:
            return False
        return True

    def size(self, path: str) -> int:
        return int(self._fs.size(path))

    def read(self, path: str) -> bytes:
        content: bytes = self._fs.cat_file(path)
        return content

    def names(self, directory: str) -> list[str]:
        """Return the names in a directory; empty if it does not exist."""
        if not self._fs.isdir(directory):
            return []
        return [path.rstrip("/").rsplit("/", 1)[-1] for path in self._fs.ls(directory, detail=False)]

    def newest(self, path: str) -> datetime:
        """Return when the newest file under `path` was written; for an empty directory, when it was created."""
        files: Iterable[str] = self._fs.find(path) or [path]
        newest: datetime = max(self._fs.modified(file) for file in files)
        return newest

    def older_than(self, directory: str, moment: datetime) -> list[str]:
        """Return the names whose files were all written before `moment`, without those removed meanwhile."""
        older = []
        for name in self.names(directory):
            with suppress(FileNotFoundError):
                if self.newest(f"{directory}/{name}") < moment:
                    older.append(name)
        return older

    def write(self, path: str, source: BinaryIO, drafts: str) -> None:
        """Write all of `source`, from its start. `drafts` is a directory for the temporary file."""
        size = source.seek(0, 2)
        source.seek(0)
        for directory in (self._fs._parent(path), drafts):
            self._fs.makedirs(directory, exist_ok=True)
        draft = f"{drafts}/{secrets.token_hex(16)}"
        try:
            with self._fs.open(draft, "wb") as file:
                reserve(file, size, self._min_free)
                shutil.copyfileobj(source, file, CHUNK_BYTES)
                make_durable(file)
            self._fs.mv(draft, path)
        except BaseException:
            with suppress(OSError):
                self._fs.rm_file(draft)
            raise

    def settle(self, *directories: str) -> None:
        """Make renames into these directories durable."""
        for directory in directories:
            sync_directory(self._fs, directory)

    def remove(self, path: str) -> None:
        """Remove a file, or a directory with its contents, if it exists."""
        with suppress(FileNotFoundError):
            self._fs.rm(path, recursive=True)

    def remove_drafts(self, drafts: str, before: datetime) -> None:
        """Remove the temporary files of writers that were interrupted before `before`."""
        for name in self.older_than(drafts, before):
            self.remove(f"{drafts}/{name}")

    def move(self, path: str, to: str) -> None:
        """Move a directory with its files, which may be visible in both places for a moment."""
        self._fs.makedirs(self._fs._parent(to), exist_ok=True)
        self._fs.mv(path, to, recursive=True)

    def open(self, path: str) -> Any:
        """Open a file for sequential reading."""
        return self._fs.open(path, "rb")

    async def chunks(self, path: str) -> AsyncIterator[bytes]:
        """Yield the file in pieces of at most 1 MiB. Opens it on the first step, so that an iterator that is never
        started holds nothing. Raise OSError."""
        file = await asyncio.to_thread(self.open, path)
        try:
            while chunk := await asyncio.to_thread(file.read, CHUNK_BYTES):
                yield chunk
        finally:
            file.close()
