"""The 429 responses of the limits, with OpenAI's wording."""

from collections.abc import Mapping, Sequence

from loragate.gateway.errors import TooManyRequests
from loragate.gateway.limits.backend import MICROSECONDS, ExceededLimit, OperationResult
from loragate.gateway.limits.lease import rate_limit_headers
from loragate.gateway.limits.subject import Kind, Subject
from loragate.gateway.limits.windows import until_next_day, until_next_month

_UNITS: dict[Kind, str] = {
    "requests": "requests per minute",
    "tokens": "tokens per minute",
    "concurrency": "requests at the same time",
    "day": "tokens per day",
    "month": "tokens per month",
}
_CONCURRENCY_WAIT = 1.0  # seconds; when a running request will end is unknown
_MAX_WORTHWHILE_WAIT = 60.0  # seconds


class RateLimited(TooManyRequests):
    """A limit has no room. `retry` says whether the same request can succeed after `retry_after` seconds."""

    def __init__(self, message: str, *, retry_after: float, retry: bool, headers: Mapping[str, str]) -> None:
        super().__init__(message, retry_after=retry_after)
        self._retry = retry
        self._headers = headers

    @property
    def headers(self) -> Mapping[str, str]:
        return {**super().headers, **self._headers, "x-should-retry": "true" if self._retry else "false"}


def request_too_large(subjects: Sequence[Subject], tokens: int) -> RateLimited | None:
    """Return the error for a request that exceeds a limit even when nothing is used; None if it exceeds none."""
    for subject in subjects:
        for kind, limit in subject.limits.items():
            requested = 1 if kind in ("requests", "concurrency") else tokens
            if requested > limit:
                message = (
                    f"Request too large for {subject.description}: limit of {limit} {_UNITS[kind]}, "
                    f"requested {requested}. It can never succeed; ask for less."
                )
                return RateLimited(message, retry_after=_MAX_WORTHWHILE_WAIT, retry=False, headers={})
    return None


def limit_exceeded(result: OperationResult, subjects: Sequence[Subject], tokens: int) -> RateLimited:
    """Return the error that names the exceeded limit with the longest wait."""
    waits = [(_wait(exceeded, result.now), exceeded) for exceeded in result.exceeded]
    wait, exceeded = max(waits, key=lambda each: each[0])
    subject = subjects[exceeded.subject]
    requested = "" if exceeded.kind in ("requests", "concurrency") else f", requested {tokens}"
    message = (
        f"Rate limit reached for {subject.description}: limit of {subject.limits[exceeded.kind]} "
        f"{_UNITS[exceeded.kind]}{requested}. Please try again in {wait:.3f}s."
    )
    headers = rate_limit_headers(result, subjects)
    return RateLimited(message, retry_after=wait, retry=wait <= _MAX_WORTHWHILE_WAIT, headers=headers)


def _wait(exceeded: ExceededLimit, now: float) -> float:
    """Return seconds."""
    match exceeded.kind:
        case "day":
            return until_next_day(now) / MICROSECONDS
        case "month":
            return until_next_month(now) / MICROSECONDS
        case _:
            return _CONCURRENCY_WAIT if exceeded.wait is None else exceeded.wait / MICROSECONDS
