"""Formatting of numbers, sizes and times."""

from datetime import UTC, datetime

_STEPS = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k"))
_UNITS = ("B", "KB", "MB", "GB", "TB")


def count(value: float | None) -> str:
    """Format a count: 1,234 in full, 12.3k from ten thousand on."""
    if value is None:
        return "–"
    if abs(value) < 10_000:
        return f"{value:,.0f}"
    for step, letter in _STEPS:
        if abs(value) >= step:
            return f"{value / step:.3g}{letter}"
    return f"{value:,.0f}"


def size(value: float | None) -> str:
    """Format a number of bytes."""
    if value is None:
        return "–"
    unit = 0
    while value >= 1000 and unit < len(_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    return f"{value:.0f} {_UNITS[unit]}" if unit == 0 else f"{value:.3g} {_UNITS[unit]}"


def seconds(value: float | None) -> str:
    """Format a duration in seconds."""
    if value is None:
        return "–"
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.2f} s"


def limit(value: float | None) -> str:
    """Format a limit, of which None means unlimited."""
    return "unlimited" if value is None else count(value)


def moment(text: str | None) -> str:
    """Format an RFC 3339 time as date and time in UTC."""
    if text is None:
        return "–"
    return _parsed(text).strftime("%d %b %Y, %H:%M UTC")


def ago(text: str | None) -> str:
    """Format an RFC 3339 time as the time that has passed since."""
    if text is None:
        return "never"
    passed = (datetime.now(UTC) - _parsed(text)).total_seconds()
    for length, name in ((86_400.0, "day"), (3600.0, "hour"), (60.0, "minute")):
        if passed >= length:
            number = int(passed // length)
            return f"{number} {name}{'' if number == 1 else 's'} ago"
    return "just now"


def unix(seconds_since: float) -> str:
    """Convert Unix time to RFC 3339."""
    return datetime.fromtimestamp(seconds_since, UTC).isoformat()


def is_past(text: str | None) -> bool:
    """Return whether an RFC 3339 time is in the past; None is not."""
    return text is not None and _parsed(text) <= datetime.now(UTC)


def _parsed(text: str) -> datetime:
    return datetime.fromisoformat(text)
