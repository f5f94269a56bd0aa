"""Copies of tenants' files on this machine, for as long as they are read."""

import asyncio
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from loragate.adapter_store.store import Store

if TYPE_CHECKING:
    from hashlib import _Hash


@contextmanager
def unnamed_file(folder: Path) -> Iterator[BinaryIO]:
    """Open a file without a name, which never outlives the block or the process."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder) as file:
        yield file


async def download(store: Store, tenant_id: str, pieces: Sequence[str], file: BinaryIO, digest: "_Hash") -> None:
    """Download the pieces into `file`, update `digest`, and rewind the file. Raise StoreError, OSError."""
    async for chunk in store.blobs.of(tenant_id).pieces.read(pieces):
        digest.update(chunk)
        await asyncio.to_thread(file.write, chunk)
    file.seek(0)
