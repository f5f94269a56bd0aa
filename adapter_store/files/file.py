"""Tenants' files."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from loragate.adapter_store.errors import Invalid
from loragate.adapter_store.timestamps import utc_now

_NAME_LENGTH = 255
_SHORTEST, _LONGEST = timedelta(hours=1), timedelta(days=30)
_TRANSPORT = timedelta(days=1)  # for files that are to become an adapter


class Purpose(StrEnum):
    """The purpose of a file, which decides which of a tenant's keys may see it."""

    FINE_TUNE = "fine-tune"
    FINE_TUNE_RESULTS = "fine-tune-results"
    ADAPTER = "adapter"
    BATCH = "batch"
    BATCH_OUTPUT = "batch_output"


@dataclass(frozen=True)
class FileFacts:
    """The facts of a file to be created. `seconds` is its lifetime; None: until it is deleted.

    `open`: lines may be appended until it is closed; only training data can be open.
    """

    filename: str
    purpose: Purpose
    seconds: int | None = None
    open: bool = False

    def __post_init__(self) -> None:
        check_text(self.filename, "filename")
        if self.open and self.purpose is not Purpose.FINE_TUNE:
            raise Invalid(f"Only files for the purpose '{Purpose.FINE_TUNE}' can be open.", param="open")
        if self.seconds is not None and not _SHORTEST <= timedelta(seconds=self.seconds) <= _LONGEST:
            bounds = f"{_SHORTEST.total_seconds():.0f} to {_LONGEST.total_seconds():.0f}"
            raise Invalid(f"`expires_after.seconds` must be {bounds}.", param="expires_after.seconds")

    def expires_at(self, created_at: datetime) -> datetime | None:
        if self.seconds is not None:
            return created_at + timedelta(seconds=self.seconds)
        return created_at + _TRANSPORT if self.purpose is Purpose.ADAPTER else None


@dataclass(frozen=True)
class File:
    """A file, whose bytes never change, except that an open file can grow. `open_until` is when it closes unless more
    is appended; None for a closed file. `format` is the format of an open file's lines, as named by its writer."""

    id: str
    filename: str
    purpose: Purpose
    size_bytes: int
    created_at: datetime
    expires_at: datetime | None
    open_until: datetime | None = None
    format: str | None = None

    @property
    def is_open(self) -> bool:
        """More lines may be appended."""
        return self.open_until is not None and self.open_until > utc_now()


def check_text(text: str, param: str) -> str:
    """Check a text from a client that is only displayed. Raise Invalid."""
    if not 1 <= len(text) <= _NAME_LENGTH or not text.isprintable():
        raise Invalid(f"`{param}` must be 1 to {_NAME_LENGTH} printable characters.", param=param)
    return text
