"""The nouns of tenants' files."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from loragate.adapter_store.errors import Invalid
from loragate.adapter_store.timestamps import utc_now

_NAME_LENGTH = 255
_SHORTEST, _LONGEST = timedelta(hours=1), timedelta(days=30)
_TRANSPORT = timedelta(days=1)  # of files that are only on their way to become an adapter


class Purpose(StrEnum):
    """What a file is for; it says which of a tenant's keys may see it."""

    FINE_TUNE = "fine-tune"
    FINE_TUNE_RESULTS = "fine-tune-results"
    ADAPTER = "adapter"


@dataclass(frozen=True)
class FileFacts:
    """What is said of a file before it is there. `seconds` is how long it will live; None: until it is deleted.

    `open`: lines may be appended until it is closed; only data to train with may be that.
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
    """Its bytes never change, but that an open one gets more. `open_until`: by then it is closed, unless something is
    appended; None for a closed one. `format` is that of an open one's lines, as whoever appended them calls it."""

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
        """More may be appended."""
        return self.open_until is not None and self.open_until > utc_now()


def check_text(text: str, param: str) -> str:
    """A name that somebody else chose: shown, and used for nothing."""
    if not 1 <= len(text) <= _NAME_LENGTH or not text.isprintable():
        raise Invalid(f"`{param}` must be 1 to {_NAME_LENGTH} printable characters.", param=param)
    return text
