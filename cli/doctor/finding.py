"""The result of one check."""

from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    """FAIL: loragate cannot start or serve. WARN: it can, with limitations."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True)
class Finding:
    """`found` describes the state, `advice` what to do about it."""

    subject: str
    status: Status
    found: str
    advice: str = ""


def ok(subject: str, found: str) -> Finding:
    """Return a finding without a problem."""
    return Finding(subject, Status.OK, found)


def warn(subject: str, found: str, advice: str) -> Finding:
    """Return a finding about something that works with limitations."""
    return Finding(subject, Status.WARN, found, advice)


def fail(subject: str, found: str, advice: str) -> Finding:
    """Return a finding about something that does not work."""
    return Finding(subject, Status.FAIL, found, advice)


_MAX_CLOCK_DIFFERENCE = 2.0  # seconds


def clock_finding(service: str, seconds_ahead: float) -> Finding:
    """Judge how far another machine's clock is ahead of this one's."""
    found = f"{abs(seconds_ahead):.1f} s {'behind' if seconds_ahead > 0 else 'ahead of'} {service}"
    if abs(seconds_ahead) > _MAX_CLOCK_DIFFERENCE:
        return warn(
            "clock",
            found,
            "synchronize both with NTP: otherwise usage by hour and day, and the times in logs, do not match",
        )
    return ok("clock", f"agrees with {service}")
