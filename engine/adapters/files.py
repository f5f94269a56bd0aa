"""Adapter files on the engine's own disk: fetched once over the session, verified by digest, then kept.

A file was verified when it was stored under its digest, and is verified again when it is read.
"""

import asyncio
import logging
import os
import re
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Generic, Protocol, TypeVar
from weakref import WeakValueDictionary

from loragate.engine.adapters.disk_tier import DiskTier
from loragate.engine.adapters.weights.load import CONFIG_FILE, TENSORS_FILE, read_files
from loragate.engine.sequence.request import AdapterKey
from loragate.peft_format.errors import AdapterRejected
from loragate.peft_format.plan.layout import BaseLayout
from loragate.peft_format.read import AdapterReading
from loragate.v1 import engine_pb2 as pb

log = logging.getLogger(__name__)

Loaded = TypeVar("Loaded")
T = TypeVar("T")

_DIGEST_KIND = "sha256:"
_STAGING = "fetch-"
_DISK_SHARE = 0.1  # of free space, unless configured
_SAFE = re.compile(r"[A-Za-z0-9_-]+")


class AdapterUnavailable(Exception):
    """The adapter's bytes could not be fetched, or do not match their digest."""


class SessionEnded(Exception):
    """The session that was asked for the bytes ended."""


class AdapterPeer(Protocol):
    """A session that can provide an adapter's bytes."""

    def fetch(self, key: AdapterKey) -> AsyncIterator[pb.AdapterPart]:
        """Yield the parts in order, the last one included. Raise SessionEnded."""
        ...


class AdapterFiles(Generic[Loaded]):
    """The disk tier. `peers` returns the sessions that may be asked, best first.

    `prepare` makes of the checked files in a folder what the engine loads; it may raise AdapterRejected or OSError.
    """

    def __init__(
        self,
        directory: Path,
        layout: BaseLayout,
        prepare: Callable[[Path, AdapterReading], Loaded],
        peers: Callable[[AdapterKey], Iterable[AdapterPeer]],
        budget: int | None = None,
    ) -> None:
        self._directory = directory
        self._layout = layout
        self._prepare = prepare
        self._peers = peers
        self._locks: WeakValueDictionary[Path, asyncio.Lock] = WeakValueDictionary()
        directory.mkdir(parents=True, exist_ok=True)
        for abandoned in directory.glob(f"{_STAGING}*"):
            shutil.rmtree(abandoned, ignore_errors=True)
        self.tier = DiskTier(directory, budget or int(shutil.disk_usage(directory).free * _DISK_SHARE))

    async def load(self, key: AdapterKey) -> Loaded:
        """Return the prepared adapter. Raise AdapterUnavailable with the reason."""
        path = self._path(key)
        async with self._locked(path):
            if path in self.tier:
                try:
                    return await asyncio.to_thread(self._read, path, key)
                except AdapterUnavailable:  # corrupted on our disk: fetch it again
                    self.tier.remove(path)
            return await self._fetch_and(key, path, self._read)

    async def fetch(self, key: AdapterKey) -> None:
        """Make sure that the adapter's files are here and checked. Raise AdapterUnavailable."""
        path = self._path(key)
        async with self._locked(path):
            if path not in self.tier:
                await self._fetch_and(key, path, self._check)

    async def fetch_ahead(self, key: AdapterKey) -> None:
        """Fetch the adapter's files before anyone waits for them; a failure is only logged."""
        try:
            await self.fetch(key)
        except AdapterUnavailable as error:
            log.warning("adapter %s cannot be fetched ahead of time: %s", key.digest, error)

    @asynccontextmanager
    async def opened(self, key: AdapterKey) -> AsyncIterator[tuple[Path, AdapterReading]]:
        """Have the adapter's checked files here, in a folder, until the block ends. Raise AdapterUnavailable."""
        path = self._path(key)
        await self.fetch(key)
        with self.tier.reading(path):
            yield path, await asyncio.to_thread(self._check, path, key)

    def protect(self, keys: Iterable[AdapterKey]) -> None:
        """Protect the files of these adapters from eviction, in place of those protected before."""
        self.tier.protected = frozenset(path for key in keys if (path := self._folder(key)) is not None)

    def discard(self, key: AdapterKey) -> None:
        """Remove the adapter's files, unless they are being read."""
        path = self._folder(key)
        if path is not None and not self.tier.is_in_use(path):
            self.tier.remove(path)

    def keys(self) -> list[AdapterKey]:
        """Return the adapters whose files are here."""
        return [_key_from(path) for path in self.tier.paths()]

    def recent(self, count: int) -> list[AdapterKey]:
        """Return at most `count` of the adapters whose files are here, the most recently used first."""
        return [_key_from(path) for path in self.tier.recent(count)]

    def _path(self, key: AdapterKey) -> Path:
        path = self._folder(key)
        if path is None:
            raise AdapterUnavailable("its tenant id or digest is malformed")
        return path

    def _folder(self, key: AdapterKey) -> Path | None:
        """Return the folder of the adapter's files, or None if the key is malformed."""
        parts = (key.tenant_id, key.digest.removeprefix(_DIGEST_KIND))
        return self._directory.joinpath(*parts) if all(_SAFE.fullmatch(part) for part in parts) else None

    def _read(self, path: Path, key: AdapterKey) -> Loaded:
        reading = self._check(path, key)
        with _as_unavailable():
            return self._prepare(path, reading)

    def _check(self, path: Path, key: AdapterKey) -> AdapterReading:
        with _as_unavailable():
            reading = read_files(path, self._layout)
        if reading.digest != key.digest:
            raise AdapterUnavailable(f"its bytes have the digest {reading.digest}")
        return reading

    @asynccontextmanager
    async def _locked(self, path: Path) -> AsyncIterator[None]:
        """Hold the adapter's lock: a session is asked for an adapter once at a time, because parts name only their
        adapter."""
        lock = self._locks.setdefault(path, asyncio.Lock())
        with self.tier.reading(path):
            async with lock:
                yield

    async def _fetch_and(self, key: AdapterKey, path: Path, look: Callable[[Path, AdapterKey], T]) -> T:
        """Fetch the files and return the result of `look`. Files that do not match their digest are removed."""
        await self._fetch(key, path)
        self.tier.add(path)
        try:
            return await asyncio.to_thread(look, path, key)
        except AdapterUnavailable:
            self.tier.remove(path)
            raise

    async def _fetch(self, key: AdapterKey, path: Path) -> None:
        for peer in self._peers(key):
            staging = Path(tempfile.mkdtemp(prefix=_STAGING, dir=self._directory))
            try:
                await _receive(peer.fetch(key), staging)
                await asyncio.to_thread(_publish, staging, path)
                return
            except SessionEnded:
                continue
            except OSError as error:
                raise AdapterUnavailable(f"its files cannot be kept ({error.strerror})") from error
            finally:
                shutil.rmtree(staging, ignore_errors=True)
        raise AdapterUnavailable("no connected client can provide its files")


def _key_from(path: Path) -> AdapterKey:
    return AdapterKey(path.parent.name, f"{_DIGEST_KIND}{path.name}")


@contextmanager
def _as_unavailable() -> Iterator[None]:
    try:
        yield
    except AdapterRejected as error:
        raise AdapterUnavailable(str(error)) from error
    except OSError as error:
        raise AdapterUnavailable(f"its files cannot be read ({error.strerror})") from error


def _publish(staging: Path, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    os.rename(staging, path)


async def _receive(parts: AsyncIterator[pb.AdapterPart], staging: Path) -> None:
    with (staging / TENSORS_FILE).open("wb") as tensors:
        async for part in parts:
            if part.error:
                raise AdapterUnavailable(part.error)
            if part.config_json:
                (staging / CONFIG_FILE).write_bytes(part.config_json)
            await asyncio.to_thread(tensors.write, part.tensors)
