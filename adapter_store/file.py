"""The nouns of tenants' files."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from loragate.adapter_store.errors import Invalid

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
    """What is said of a file before it is there. `seconds` is how long it will live; None: until it is deleted."""

    filename: str
    purpose: Purpose
    seconds: int | None = None

    def __post_init__(self) -> None:
        check_text(self.filename, "filename")
        if self.seconds is not None and not _SHORTEST <= timedelta(seconds=self.seconds) <= _LONGEST:
            bounds = f"{_SHORTEST.total_seconds():.0f} to {_LONGEST.total_seconds():.0f}"
            raise Invalid(f"`expires_after.seconds` must be {bounds}.", param="expires_after.seconds")

    def expires_at(self, created_at: datetime) -> datetime | None:
        if self.seconds is not None:
            return created_at + timedelta(seconds=self.seconds)
        return created_at + _TRANSPORT if self.purpose is Purpose.ADAPTER else None


@dataclass(frozen=True)
class File:
    """Its bytes never change."""

    id: str
    filename: str
    purpose: Purpose
    size_bytes: int
    created_at: datetime
    expires_at: datetime | None


def check_text(text: str, param: str) -> str:
    """A name that somebody else chose: shown, and used for nothing."""
    if not 1 <= len(text) <= _NAME_LENGTH or not text.isprintable():
        raise Invalid(f"`{param}` must be 1 to {_NAME_LENGTH} printable characters.", param=param)
    return text
