"""Merged exports, unpacked while they are received."""

import io
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from loragate.cli.client.http.api import Api, path
from loragate.cli.client.terminal.progress import transfer_progress
from loragate.cli.errors import BAD_SETTING, CliError


def export_merged(api: Api, name: str, version: int | None, folder: Path) -> None:
    """Write the merged model to `folder`, which appears once it is complete. Without a version, take the latest one.

    Raise CliError.
    """
    if folder.exists():
        raise CliError(f"{folder} exists already: choose another folder", BAD_SETTING)
    version = version or api.call("GET", path("v1", "adapters", name))["latest_version"]
    if version is None:
        raise CliError(f"{name} has no version")
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        _receive(api, path("v1", "adapters", name, "versions", version, "merged"), draft)
        draft.chmod(0o755)
        draft.rename(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _receive(api: Api, url: str, to: Path) -> None:
    with transfer_progress() as progress, api.stream("GET", url) as response:
        task = progress.add_task(to.name.strip("."), total=int(response.headers["content-length"]))
        received = _Received(response.iter_bytes(), lambda count: progress.advance(task, count))
        try:
            with tarfile.open(fileobj=io.BufferedReader(received), mode="r|") as archive:
                for entry in archive:
                    archive.extract(entry, to, filter="data")
        except tarfile.TarError as error:
            raise CliError(f"the server sent no valid archive: {error}") from None
        except OSError as error:
            raise CliError(f"{to} cannot be written: {error.strerror}") from None


class _Received(io.RawIOBase):
    """The body of a response as a file."""

    def __init__(self, pieces: Iterator[bytes], advance: Callable[[int], None]) -> None:
        self._pieces = pieces
        self._advance = advance
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        if not self._rest:
            self._rest = memoryview(next(self._pieces, b""))
            self._advance(len(self._rest))
        count = min(len(buffer), len(self._rest))
        buffer[:count], self._rest = self._rest[:count], self._rest[count:]
        return count
