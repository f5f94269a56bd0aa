"""The bytes of tenants' files, in the pieces in which they arrived: `<root>/<tenant>/pieces/<the piece's id>`.

A file is an ordered list of pieces, so that completing an upload copies no bytes. SQL records the owner of each piece
(`files`, `file_uploads`); a piece without a row is left from an interrupted upload.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import BinaryIO

from loragate.adapter_store.blobs.filesystem import Objects
from loragate.adapter_store.database.error_mapping import blob_faults

_ID = re.compile(r"part_[0-9A-Za-z]+")


class TenantPieces:
    """The pieces of one tenant. Methods raise StorageFull and Unavailable."""

    def __init__(self, objects: Objects, root: str, drafts: str) -> None:
        self._objects = objects
        self._root = root
        self._drafts = drafts

    async def put(self, piece_id: str, content: BinaryIO) -> None:
        """Store a piece durably."""
        with blob_faults():
            await asyncio.to_thread(self._put, self.path_of(piece_id), content)

    async def has(self, piece_id: str) -> bool:
        with blob_faults():
            return await asyncio.to_thread(self._objects.exists, self.path_of(piece_id))

    async def read(self, piece_ids: Sequence[str]) -> AsyncIterator[bytes]:
        """Yield the bytes of the pieces in order, in chunks of at most 1 MiB."""
        with blob_faults():
            for piece_id in piece_ids:
                async for chunk in self._objects.chunks(self.path_of(piece_id)):
                    yield chunk

    async def older_than(self, moment: datetime) -> tuple[str, ...]:
        """Return the ids of the pieces that were written before `moment`."""
        with blob_faults():
            names = await asyncio.to_thread(self._objects.older_than, self._root, moment)
        return tuple(sorted(name for name in names if _ID.fullmatch(name)))

    async def remove(self, *piece_ids: str) -> None:
        with blob_faults():
            for piece_id in piece_ids:
                await asyncio.to_thread(self._objects.remove, self.path_of(piece_id))

    def _put(self, path: str, content: BinaryIO) -> None:
        self._objects.write(path, content, self._drafts)
        self._objects.settle(self._root)

    def path_of(self, piece_id: str) -> str:
        """Return the path of a piece's file."""
        assert _ID.fullmatch(piece_id), "ids of pieces are ours"
        return f"{self._root}/{piece_id}"
