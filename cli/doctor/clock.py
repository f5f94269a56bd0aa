"""This machine's clock beside another's."""

from loragate.cli.doctor.finding import Finding, ok, warn

_MOST_SECONDS = 2.0


def clock_finding(whose: str, seconds_ahead: float) -> Finding:
    """`seconds_ahead`: the other one against ours."""
    found = f"{abs(seconds_ahead):.1f} s {'behind' if seconds_ahead > 0 else 'ahead of'} {whose}"
    if abs(seconds_ahead) > _MOST_SECONDS:
        return warn("clock", found, "set one of them (NTP): hours and days of usage, and what logs say, would disagree")
    return ok("clock", f"as {whose}'s")
