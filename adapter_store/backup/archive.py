"""Backups as a folder or as one uncompressed tar file, with the same names in both.

Only their owner can read them. Nothing is unpacked: files are read by the names in the manifest.
"""

import hashlib
import os
import shutil
import tarfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

from loragate.adapter_store.backup.manifest import NAME, ArchivedFile, Manifest, decode_manifest, encode_manifest
from loragate.adapter_store.blobs.filesystem import CHUNK_BYTES
from loragate.adapter_store.errors import Conflict, Invalid, NotFound

PARTIAL = ".partial"
_TAR = ".tar"
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC

Advance = Callable[[int], None]
"""Reports a number of bytes as done."""


class _Counted:
    """A source that knows the number and the digest of the bytes that were read from it."""

    def __init__(self, source: Any, advance: Advance) -> None:
        self._source = source
        self._advance = advance
        self._digest = hashlib.sha256()
        self.size = 0

    def read(self, size: int = -1) -> bytes:
        chunk: bytes = self._source.read(size)
        self._digest.update(chunk)
        self.size += len(chunk)
        self._advance(len(chunk))
        return chunk

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()


class ArchiveWriter(ABC):
    """Writes a backup. Methods block and raise OSError."""

    def add(self, name: str, size: int, source: Any, advance: Advance = lambda _: None) -> ArchivedFile:
        """Add a file of this size. `source` needs `read` only."""
        counted = _Counted(source, advance)
        self._add(name, size, counted)
        if counted.size != size:
            raise OSError(f"{name} changed while it was copied")
        return ArchivedFile(name, size, counted.sha256)

    def finish(self, manifest: Manifest) -> None:
        """Add the manifest, which makes the backup complete."""
        content = encode_manifest(manifest)
        self._finish(len(content), BytesIO(content))

    @abstractmethod
    def _add(self, name: str, size: int, source: _Counted) -> None: ...

    @abstractmethod
    def _finish(self, size: int, manifest: BinaryIO) -> None: ...


class _FolderWriter(ArchiveWriter):
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def _add(self, name: str, size: int, source: Any) -> None:
        path = self._folder / name
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(os.open(path, _NEW, 0o600), "wb") as file:
            shutil.copyfileobj(source, file, CHUNK_BYTES)
            file.flush()
            os.fsync(file.fileno())

    def _finish(self, size: int, manifest: BinaryIO) -> None:
        for folder in {path.parent for path in self._folder.rglob("*")}:
            _sync(folder)
        self._add(NAME + PARTIAL, size, manifest)
        (self._folder / (NAME + PARTIAL)).replace(self._folder / NAME)
        _sync(self._folder)


class _TarWriter(ArchiveWriter):
    def __init__(self, tar: tarfile.TarFile, file: BinaryIO) -> None:
        self._tar = tar
        self._file = file

    def _add(self, name: str, size: int, source: Any) -> None:
        member = tarfile.TarInfo(name)
        member.size, member.mode = size, 0o600
        self._tar.addfile(member, source)

    def _finish(self, size: int, manifest: BinaryIO) -> None:
        self._add(NAME, size, manifest)
        self._tar.close()
        self._file.flush()
        os.fsync(self._file.fileno())


@contextmanager
def new_archive(path: Path) -> Iterator[ArchiveWriter]:
    """Create a backup at the path: a tar file if its name ends with .tar, else a folder, which may be there if empty.

    A tar file has its name only once it is complete. Raises Conflict if something is there, OSError.
    """
    if path.suffix == _TAR:
        draft = path.with_name(path.name + PARTIAL)
        if path.exists():
            raise Conflict(f"{path} exists; choose another name for the backup.")
        draft.unlink(missing_ok=True)
        with open(os.open(draft, _NEW, 0o600), "wb") as file, tarfile.open(fileobj=file, mode="w") as tar:
            yield _TarWriter(tar, file)
        draft.replace(path)
        _sync(path.absolute().parent)
        return
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    if any(path.iterdir()):
        raise Conflict(f"{path} is not empty; choose an empty folder for the backup.")
    yield _FolderWriter(path)


class ArchiveReader(ABC):
    """Reads a backup. `manifest` is read first, so that an incomplete backup is rejected."""

    manifest: Manifest

    @abstractmethod
    def open(self, name: str) -> BinaryIO:
        """Open a file. Raises KeyError or OSError if it cannot be read."""

    def read(self, name: str) -> bytes:
        with self.open(name) as file:
            return file.read()

    def verify(self, advance: Advance = lambda _: None) -> None:
        """Read all files and compare them with the manifest. Raises Invalid, which names the first damaged file."""
        for expected in self.manifest.files:
            try:
                with self.open(expected.name) as file:
                    counted = _Counted(file, advance)
                    while counted.read(CHUNK_BYTES):
                        pass
            except (KeyError, OSError, tarfile.TarError) as error:
                raise Invalid(f"The backup is damaged: {expected.name} cannot be read ({error}).") from None
            if (counted.size, counted.sha256) != (expected.size, expected.sha256):
                raise Invalid(f"The backup is damaged: {expected.name} has other bytes than when it was written.")


class _FolderReader(ArchiveReader):
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.manifest = _manifest(folder, self)

    def open(self, name: str) -> BinaryIO:
        return (self._folder / name).open("rb")


class _TarReader(ArchiveReader):
    def __init__(self, tar: tarfile.TarFile, path: Path) -> None:
        self._tar = tar
        self.manifest = _manifest(path, self)

    def open(self, name: str) -> BinaryIO:
        file = self._tar.extractfile(name)
        if file is None:
            raise KeyError(name)
        return file  # type: ignore[return-value]  # it has all that a BinaryIO is used for


@contextmanager
def open_archive(path: Path) -> Iterator[ArchiveReader]:
    """Open a complete backup. Raises NotFound, Invalid."""
    if path.is_dir():
        yield _FolderReader(path)
        return
    try:
        tar = tarfile.open(path, mode="r:")  # noqa: SIM115 (closed below)
    except FileNotFoundError:
        raise NotFound(f"There is no backup at {path}.") from None
    except (OSError, tarfile.TarError) as error:
        raise Invalid(f"{path} is no backup: neither a folder nor a tar file ({error}).") from None
    with tar:
        yield _TarReader(tar, path)


def _manifest(path: Path, archive: ArchiveReader) -> Manifest:
    try:
        content = archive.read(NAME)
    except (KeyError, OSError, tarfile.TarError):
        raise Invalid(f"{path} is no complete backup: it has no {NAME}, so it was interrupted.") from None
    return decode_manifest(content)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
