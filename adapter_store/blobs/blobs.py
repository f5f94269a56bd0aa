"""Tenants' bytes. Adapters are content-addressed: `<root>/<tenant>/<digest's hex>/<the two PEFT files>`.

The config is written last: an adapter exists when both files do. The bytes of a digest never change: of equivalent
uploads with different bytes (the order of a header, blanks in a config) the first one's are kept. The file system's
calls run in threads, because a local file system has only blocking ones.
"""

import asyncio
import re
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime
from io import BytesIO
from typing import BinaryIO

from fsspec.core import url_to_fs
from fsspec.utils import get_protocol

from loragate.adapter_store.blobs.filesystem import Objects
from loragate.adapter_store.blobs.pieces import TenantPieces
from loragate.adapter_store.blobs.raw_files import RawFiles
from loragate.adapter_store.database.error_mapping import blob_faults
from loragate.adapter_store.errors import CannotOpen

CONFIG_FILE = "adapter_config.json"
TENSORS_FILE = "adapter_model.safetensors"
_TEMPORARY = "tmp"
_PIECES = "pieces"
_QUARANTINE = "quarantine"
_TENANT = re.compile(r"tn_[0-9A-Za-z]+")
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")


@dataclass(frozen=True)
class StoredAdapter:
    """One adapter's bytes: the whole config, and the safetensors file in order in pieces of at most 1 MiB."""

    config_json: bytes
    tensors: AsyncIterator[bytes]
    size_bytes: int  # of the tensors' file


class Blobs:
    """The blobs of all tenants. `url` is a local path or a URL that fsspec supports; otherwise raises CannotOpen. Of a
    local disk, `min_free` bytes stay free."""

    def __init__(self, url: str, min_free: int = 0) -> None:
        self._objects, self._root = open_objects(url, min_free)
        self.raw = RawFiles(self._objects, self._root)

    def of(self, tenant_id: str) -> "TenantBlobs":
        """Return a tenant's blobs. Raise LookupError for an impossible id, so that no id leads out of the root."""
        if not _TENANT.fullmatch(tenant_id):
            raise LookupError(f"no tenant {tenant_id!r}")
        return TenantBlobs(self._objects, f"{self._root}/{tenant_id}")

    async def tenant_ids(self) -> tuple[str, ...]:
        """Return the ids of the tenants that have bytes here."""
        with blob_faults():
            names = await asyncio.to_thread(self._objects.names, self._root)
        return tuple(sorted(name for name in names if _TENANT.fullmatch(name)))

    async def try_out(self) -> None:
        """Write, read and remove a small file. Raise StorageFull, Unavailable."""
        path, word = f"{self._root}/.loragate-try", b"loragate"
        with blob_faults():
            await asyncio.to_thread(self._objects.write, path, BytesIO(word), f"{self._root}/{_TEMPORARY}")
            await asyncio.to_thread(self._objects.read, path)
            await asyncio.to_thread(self._objects.remove, path)


class TenantBlobs:
    """One tenant's bytes."""

    def __init__(self, objects: Objects, root: str) -> None:
        self._objects = objects
        self._root = root
        self._drafts = f"{root}/{_TEMPORARY}"
        self.pieces = TenantPieces(objects, f"{root}/{_PIECES}", self._drafts)

    async def put(self, digest: str, config_json: bytes, tensors: BinaryIO) -> int:
        """Store both files durably, unless the digest exists; return the size of the stored tensors' file.

        Raise StorageFull, Unavailable.
        """
        with blob_faults():
            return await asyncio.to_thread(self._put, digest, config_json, tensors)

    async def has(self, digest: str) -> bool:
        with blob_faults():
            return await asyncio.to_thread(self._has, digest)

    async def open(self, digest: str) -> StoredAdapter:
        """Return an adapter. Raise LookupError if it does not exist, OSError (also later) if it cannot be read."""
        if not await asyncio.to_thread(self._has, digest):
            raise LookupError(f"no adapter {digest!r}")
        config, tensors = (f"{self._folder(digest)}/{name}" for name in (CONFIG_FILE, TENSORS_FILE))
        config_json = await asyncio.to_thread(self._objects.read, config)
        size = await asyncio.to_thread(self._objects.size, tensors)
        return StoredAdapter(config_json, self._objects.chunks(tensors), size)

    async def digests_older_than(self, moment: datetime) -> tuple[str, ...]:
        """Return the digests whose files, complete or not, were all written before `moment`."""
        with blob_faults():
            names = await asyncio.to_thread(self._objects.older_than, self._root, moment)
        digests = (f"sha256:{name}" for name in names)
        return tuple(sorted(digest for digest in digests if _DIGEST.fullmatch(digest)))

    async def remove(self, digest: str) -> None:
        with blob_faults():
            await asyncio.to_thread(self._objects.remove, self._folder(digest))

    async def set_aside(self, digest: str) -> None:
        """Move the files into the quarantine folder, where they are kept for inspection."""
        aside = f"{self._root}/{_QUARANTINE}/{digest.removeprefix('sha256:')}-{secrets.token_hex(4)}"
        with blob_faults():
            await asyncio.to_thread(self._objects.move, self._folder(digest), aside)

    async def remove_set_aside(self, before: datetime) -> None:
        """Remove quarantined files that were written before `before`."""
        aside = f"{self._root}/{_QUARANTINE}"
        with blob_faults():
            for name in await asyncio.to_thread(self._objects.older_than, aside, before):
                await asyncio.to_thread(self._objects.remove, f"{aside}/{name}")

    async def remove_temporary(self, before: datetime) -> None:
        """Remove files of uploads that were interrupted before `before`."""
        with blob_faults():
            await asyncio.to_thread(self._objects.remove_drafts, self._drafts, before)

    def paths_of(self, digest: str) -> tuple[str, str]:
        """Return the paths of both files, in the order in which they are written. Raises LookupError."""
        folder = self._folder(digest)
        return f"{folder}/{TENSORS_FILE}", f"{folder}/{CONFIG_FILE}"

    def _folder(self, digest: str) -> str:
        match = _DIGEST.fullmatch(digest)
        if match is None:
            raise LookupError(f"no adapter {digest!r}")
        return f"{self._root}/{match[1]}"

    def _has(self, digest: str) -> bool:
        folder = self._folder(digest)
        return all(self._objects.exists(f"{folder}/{name}") for name in (CONFIG_FILE, TENSORS_FILE))

    def _put(self, digest: str, config_json: bytes, tensors: BinaryIO) -> int:
        folder = self._folder(digest)
        if not self._has(digest):
            self._store(folder, config_json, tensors)
        return self._objects.size(f"{folder}/{TENSORS_FILE}")

    def _store(self, folder: str, config_json: bytes, tensors: BinaryIO) -> None:
        self._objects.write(f"{folder}/{TENSORS_FILE}", tensors, self._drafts)
        self._objects.write(f"{folder}/{CONFIG_FILE}", BytesIO(config_json), self._drafts)
        self._objects.settle(folder, self._root, self._root.rpartition("/")[0])


def open_objects(url: str, min_free: int = 0) -> tuple[Objects, str]:
    """Return the file system of `url`, and the root in it. Raise CannotOpen."""
    protocol = get_protocol(url)
    try:
        if protocol in ("s3", "s3a"):
            from loragate.adapter_store.blobs.s3 import open_s3

            return open_s3(url)
        fs, root = url_to_fs(url, use_listings_cache=False)
    except ImportError as error:
        words = (
            f"Blobs at {protocol}:// need a package that is not installed ({error}); S3's: pip install 'loragate[s3]'."
        )
        raise CannotOpen(words) from None
    except ValueError as error:
        raise CannotOpen(f"The blob URL is invalid: {error}.") from None
    return Objects(fs, min_free), root
