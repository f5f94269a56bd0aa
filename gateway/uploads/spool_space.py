"""The disk space of uploads under way. It is taken as bytes come, within budgets.

An upload holds what it has sent, not what it announced. A tenant's uploads together get what is left of its quota;
those of one process get a share of the disk's free space; and a part of the disk is left to the database and to usage
records.
"""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import BinaryIO

from loragate.adapter_store.blobs.durability import free_bytes
from loragate.adapter_store.database.error_mapping import blob_faults
from loragate.adapter_store.errors import Conflict, StorageFull
from loragate.adapter_store.quotas import Room


@dataclass(slots=True)
class _Tenant:
    """Bytes of one tenant's uploads, sent or announced: of those that are being received, and of all."""

    uploads: int = 0
    coming: int = 0
    spooled: int = 0


class SpoolSpace:
    """One per process. `directory` is where uploads are spooled; `share` is of the disk's free space."""

    def __init__(self, directory: Path, min_free: int, share: float) -> None:
        self._directory = directory
        self._min_free = min_free
        self._share = share
        self._lock = Lock()
        self._tenants: dict[str, _Tenant] = {}
        self.used = 0  # bytes, by all uploads of this process

    @contextmanager
    def open(self, tenant_id: str, room: Room, announced: int = 0) -> "Iterator[UploadSpace]":
        """Count an upload of the `announced` size during the block; `room` is what its tenant may store.

        Raise Conflict (`quota_exceeded`).
        """
        tenant = self._tenants.setdefault(tenant_id, _Tenant())
        tenant.uploads += 1
        upload = UploadSpace(self, tenant, room)
        try:
            upload.expect(announced)
            yield upload
        finally:
            upload.release()
            tenant.uploads -= 1
            if not tenant.uploads:
                del self._tenants[tenant_id]

    def create_file(self, announced: int) -> BinaryIO:
        """Create an anonymous file, which leaves nothing behind. Raise OSError, and StorageFull if `announced` bytes do
        not fit."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = tempfile.TemporaryFile(dir=self._directory)  # noqa: SIM115 (the caller closes it)
        try:
            with self._lock:
                self._check(file, announced)
        except BaseException:
            file.close()
            raise
        return file

    def write(self, file: BinaryIO, data: bytes | bytearray) -> None:
        """Append bytes to a file within the budgets. Raise OSError and StorageFull."""
        with self._lock:
            self._check(file, len(data))
            self.used += len(data)
        file.write(data)

    def give_back(self, size: int) -> None:
        """Return the space of a file that is closed."""
        with self._lock:
            self.used -= size

    def _check(self, file: BinaryIO, size: int) -> None:
        free = free_bytes(file)
        if size > free - self._min_free:
            raise StorageFull(
                f"There is no space left for this upload: the server keeps {self._min_free} bytes of its disk free."
            )
        if self.used + size > self._share * (free + self.used):
            raise StorageFull("Uploads under way use all the space that this server has for them; try again later.")


class UploadSpace:
    """The space of one upload."""

    def __init__(self, space: SpoolSpace, tenant: _Tenant, room: Room) -> None:
        self._space = space
        self._tenant = tenant
        self._room = room
        self._coming = 0
        self._spooled = 0
        self._size = 0

    def expect(self, size: int) -> None:
        """Count `size` bytes or more in total. Raise Conflict if the tenant's uploads together exceed its quota."""
        more = max(0, size - self._spooled)
        self._coming += more
        self._spooled += more
        self._tenant.coming += more
        self._tenant.spooled += more
        left, most = self._room.left, self._room.most
        if left is not None and most is not None and (self._tenant.coming > left or self._tenant.spooled > most):
            words = (
                f"This tenant may store {most} bytes (max_storage_bytes), of which {left} are left: fewer than its "
                "uploads under way have. What is deleted counts until a sweep has removed its bytes."
            )
            raise Conflict(words, code="quota_exceeded")

    @asynccontextmanager
    async def file(self) -> AsyncIterator[BinaryIO]:
        """Yield an empty file for `write`. Raise StorageFull, Unavailable."""
        with blob_faults():
            file = await asyncio.to_thread(self._space.create_file, self._spooled)
        try:
            yield file
        finally:
            await asyncio.to_thread(file.close)  # freeing gigabytes takes a file system some time
            self._space.give_back(self._size)
            self._size = 0

    async def write(self, file: BinaryIO, data: bytes | bytearray) -> None:
        """Append bytes. Raise Conflict (`quota_exceeded`), StorageFull, Unavailable."""
        self.expect(self._size + len(data))
        with blob_faults():
            await asyncio.to_thread(self._write, file, data)

    def received(self) -> None:
        """Count the upload as received: the quotas count it from when it is stored."""
        self._tenant.coming -= self._coming
        self._coming = 0

    def release(self) -> None:
        """Count the upload no longer."""
        self.received()
        self._tenant.spooled -= self._spooled
        self._spooled = 0

    def _write(self, file: BinaryIO, data: bytes | bytearray) -> None:
        self._space.write(file, data)
        self._size += len(data)
