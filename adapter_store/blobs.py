"""Adapters' bytes, content-addressed per tenant: `<root>/<tenant>/<digest's hex>/<the two PEFT files>`.

A file comes into being under `<root>/<tenant>/tmp/`, is flushed to the disk and then renamed, config last:
an adapter is there when both are. Bytes of a digest never change once there: of uploads that say the same in
other bytes (the order of a header, blanks in a config) the first one's stay. Only fsspec's interface is used;
its calls run in threads, since a local file system has no other kind.
"""

import asyncio
import re
import secrets
import shutil
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from io import BytesIO
from typing import BinaryIO

from fsspec import AbstractFileSystem
from fsspec.core import url_to_fs

from loragate.adapter_store.durability import make_durable, sync_directory
from loragate.adapter_store.faults import blob_faults

CONFIG_FILE = "adapter_config.json"
TENSORS_FILE = "adapter_model.safetensors"
CHUNK_BYTES = 1 << 20
_TEMPORARY = "tmp"
_TENANT = re.compile(r"tn_[0-9A-Za-z]+")
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")


@dataclass(frozen=True)
class StoredAdapter:
    """One adapter's bytes: the config whole, the safetensors file in order in pieces of at most 1 MiB."""

    config_json: bytes
    tensors: AsyncIterator[bytes]


class Blobs:
    """`url` is a local path or any URL that fsspec knows."""

    def __init__(self, url: str) -> None:
        self._fs, self._root = url_to_fs(url, use_listings_cache=False)

    def of(self, tenant_id: str) -> "TenantBlobs":
        """Raises LookupError for what cannot be a tenant's id, so that no id leads out of the root."""
        if not _TENANT.fullmatch(tenant_id):
            raise LookupError(f"no tenant {tenant_id!r}")
        return TenantBlobs(self._fs, f"{self._root}/{tenant_id}")

    async def tenant_ids(self) -> tuple[str, ...]:
        """Ids of the tenants that have bytes here."""
        names = await asyncio.to_thread(_names_in, self._fs, self._root)
        return tuple(sorted(name for name in names if _TENANT.fullmatch(name)))


class TenantBlobs:
    """One tenant's bytes."""

    def __init__(self, fs: AbstractFileSystem, root: str) -> None:
        self._fs = fs
        self._root = root

    async def put(self, digest: str, config_json: bytes, tensors: BinaryIO) -> int:
        """Stores both files durably, unless the digest is there; returns the size of the tensors' file kept.

        Raises StorageFull, Unavailable.
        """
        with blob_faults():
            return await asyncio.to_thread(self._put, digest, config_json, tensors)

    async def has(self, digest: str) -> bool:
        with blob_faults():
            return await asyncio.to_thread(self._has, digest)

    async def open(self, digest: str) -> StoredAdapter:
        """Raises LookupError when it is not there, OSError (also while iterating) when it cannot be read."""
        if not await asyncio.to_thread(self._has, digest):
            raise LookupError(f"no adapter {digest!r}")
        config_json = await asyncio.to_thread(self._fs.cat_file, f"{self._folder(digest)}/{CONFIG_FILE}")
        return StoredAdapter(config_json, self._chunks(f"{self._folder(digest)}/{TENSORS_FILE}"))

    async def digests_older_than(self, moment: datetime) -> tuple[str, ...]:
        """Digests whose files, complete or not, were all written before `moment`."""
        with blob_faults():
            names = await asyncio.to_thread(self._older_than, self._root, moment)
        digests = (f"sha256:{name}" for name in names)
        return tuple(sorted(digest for digest in digests if _DIGEST.fullmatch(digest)))

    async def remove(self, digest: str) -> None:
        with blob_faults():
            await asyncio.to_thread(self._fs.rm, self._folder(digest), recursive=True)

    async def remove_temporary(self, before: datetime) -> None:
        """Removes what uploads left behind that were cut off before `before`."""
        temporary = f"{self._root}/{_TEMPORARY}"
        with blob_faults():
            for name in await asyncio.to_thread(self._older_than, temporary, before):
                with suppress(FileNotFoundError):
                    await asyncio.to_thread(self._fs.rm_file, f"{temporary}/{name}")

    def _folder(self, digest: str) -> str:
        match = _DIGEST.fullmatch(digest)
        if match is None:
            raise LookupError(f"no adapter {digest!r}")
        return f"{self._root}/{match[1]}"

    def _has(self, digest: str) -> bool:
        folder = self._folder(digest)
        return all(self._fs.exists(f"{folder}/{name}") for name in (CONFIG_FILE, TENSORS_FILE))

    def _put(self, digest: str, config_json: bytes, tensors: BinaryIO) -> int:
        folder = self._folder(digest)
        if not self._has(digest):
            self._store(folder, config_json, tensors)
        return int(self._fs.size(f"{folder}/{TENSORS_FILE}"))

    def _store(self, folder: str, config_json: bytes, tensors: BinaryIO) -> None:
        for directory in (folder, f"{self._root}/{_TEMPORARY}"):
            self._fs.makedirs(directory, exist_ok=True)
        self._write(f"{folder}/{TENSORS_FILE}", tensors)
        self._write(f"{folder}/{CONFIG_FILE}", BytesIO(config_json))
        for directory in (folder, self._root, self._fs._parent(self._root)):
            sync_directory(self._fs, directory)

    def _write(self, path: str, source: BinaryIO) -> None:
        draft = f"{self._root}/{_TEMPORARY}/{secrets.token_hex(16)}"
        source.seek(0)
        try:
            with self._fs.open(draft, "wb") as file:
                shutil.copyfileobj(source, file, CHUNK_BYTES)
                make_durable(file)
            self._fs.mv(draft, path)
        except BaseException:
            with suppress(OSError):
                self._fs.rm_file(draft)
            raise

    def _older_than(self, directory: str, moment: datetime) -> list[str]:
        return [name for name in _names_in(self._fs, directory) if self._newest(f"{directory}/{name}") < moment]

    def _newest(self, path: str) -> datetime:
        """When the newest file under `path` was written; of an empty directory, when it was made."""
        files: Iterable[str] = self._fs.find(path) or [path]
        newest: datetime = max(self._fs.modified(file) for file in files)
        return newest

    async def _chunks(self, path: str) -> AsyncIterator[bytes]:
        """Opens the file on the first step, so that an iterator that nobody starts holds nothing."""
        file = await asyncio.to_thread(self._fs.open, path, "rb")
        try:
            while chunk := await asyncio.to_thread(file.read, CHUNK_BYTES):
                yield chunk
        finally:
            file.close()


def _names_in(fs: AbstractFileSystem, directory: str) -> list[str]:
    if not fs.isdir(directory):
        return []
    return [path.rstrip("/").rsplit("/", 1)[-1] for path in fs.ls(directory, detail=False)]
