"""Usage records of the data directory that the database may not have yet.

Restored ones go to folders of their own, which look like those of dead workers: the next gateway settles them, and the
database ignores the records that it knows.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from loragate.adapter_store.backup.archive import ArchiveReader
from loragate.adapter_store.backup.manifest import USAGE
from loragate.gateway.metering.live_counters import used_slots
from loragate.gateway.metering.spool import LIVE_COUNTERS, LOCK, sync_folder


def usage_files(usage_folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the name in a backup and the content of each file; a gateway may remove and extend them meanwhile."""
    for path in sorted(usage_folder.glob("*/*")):
        if path.name != LOCK:
            with suppress(FileNotFoundError):
                yield f"{USAGE}/{path.parent.name}/{path.name}", _content(path)


def restore_usage(archive: ArchiveReader, usage_folder: Path) -> None:
    """Write the files of the backup durably. Raises OSError."""
    for file in archive.manifest.of(USAGE):
        _, worker, name = file.name.split("/")
        folder = usage_folder / f"{archive.manifest.id}-{worker}"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for written, content in ((name, archive.read(file.name)), (LOCK, b"")):
            _write(folder / written, content)
        sync_folder(folder)


def _content(path: Path) -> bytes:
    """Return the file's content; of the counters of running requests, those in use."""
    content = path.read_bytes()
    return used_slots(content) if path.name == LIVE_COUNTERS else content


def _write(path: Path, content: bytes) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
