"""A tenant's file on this machine, for as long as somebody reads it."""

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
def draft(folder: Path) -> Iterator[BinaryIO]:
    """A file without a name: whatever happens, nothing is left behind."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder) as file:
        yield file


async def fetch(store: Store, tenant_id: str, pieces: Sequence[str], file: BinaryIO, digest: "_Hash") -> None:
    """What these pieces hold, into `file`, which then stands at its beginning; `digest` hears of it. Raises StoreError,
    OSError."""
    async for chunk in store.blobs.of(tenant_id).pieces.read(pieces):
        digest.update(chunk)
        await asyncio.to_thread(file.write, chunk)
    file.seek(0)
