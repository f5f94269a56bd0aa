"""The manifest of a backup: what it consists of. It is written last, so a backup without one is incomplete."""

import re
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

import orjson

from loragate.adapter_store.blobs.blobs import CONFIG_FILE, TENSORS_FILE
from loragate.adapter_store.errors import Invalid

NAME = "manifest.json"
FORMAT = 1

TABLES, BLOBS, USAGE, SECRET = "database", "blobs", "usage", "secret_key"
_NAMES = re.compile(
    rf"{TABLES}/[a-z_]+\.jsonl"
    rf"|{BLOBS}/tn_[0-9A-Za-z]+/[0-9a-f]{{64}}/({re.escape(CONFIG_FILE)}|{re.escape(TENSORS_FILE)})"
    rf"|{BLOBS}/tn_[0-9A-Za-z]+/pieces/part_[0-9A-Za-z]+"
    rf"|{USAGE}/[0-9A-Za-z_-]+/[0-9A-Za-z]+[0-9A-Za-z.]*"
    rf"|{SECRET}"
)


@dataclass(frozen=True)
class ArchivedFile:
    """A file of the backup. Its name is relative to the backup, and one that this program writes."""

    name: str
    size: int
    sha256: str

    def __post_init__(self) -> None:
        if not _NAMES.fullmatch(self.name):
            raise ValueError(f"a backup has no file {self.name!r}")


@dataclass(frozen=True)
class Manifest:
    """A complete backup. `missing` are files that the database refers to and that did not exist."""

    id: str
    created_at: datetime
    loragate: str  # the version that made it
    schema: str
    files: tuple[ArchivedFile, ...]
    missing: tuple[str, ...] = ()
    format: int = FORMAT

    def of(self, kind: str) -> list[ArchivedFile]:
        """Return the files of one kind, in the order in which they were written."""
        return [file for file in self.files if file.name.partition("/")[0] == kind]

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


def encode_manifest(manifest: Manifest) -> bytes:
    return orjson.dumps(asdict(manifest), option=orjson.OPT_INDENT_2) + b"\n"


def decode_manifest(content: bytes) -> Manifest:
    """Return the manifest. Raises Invalid."""
    try:
        document: dict[str, Any] = orjson.loads(content)
        found = document["format"]
        if found != FORMAT:
            raise Invalid(
                f"The backup has the format {found}; this version reads the format {FORMAT}. Restore it with "
                f"loragate {document.get('loragate')} or newer."
            )
        files = tuple(ArchivedFile(**file) for file in document.pop("files"))
        created_at = datetime.fromisoformat(document.pop("created_at"))
        missing = tuple(document.pop("missing"))
        return Manifest(files=files, created_at=created_at, missing=missing, **document)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise Invalid(f"The backup is damaged: {NAME} cannot be read ({error}).") from None
