"""One thing that was looked at."""

from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    """FAIL: loragate cannot start or serve like this. WARN: it can, with less."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True)
class Finding:
    """`found` says what is there, `advice` what to do about it."""

    subject: str
    status: Status
    found: str
    advice: str = ""


def ok(subject: str, found: str) -> Finding:
    """As it should be."""
    return Finding(subject, Status.OK, found)


def warn(subject: str, found: str, advice: str) -> Finding:
    """Works, with less."""
    return Finding(subject, Status.WARN, found, advice)


def fail(subject: str, found: str, advice: str) -> Finding:
    """Does not work."""
    return Finding(subject, Status.FAIL, found, advice)
