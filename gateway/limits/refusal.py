"""429, in OpenAI's words."""

from collections.abc import Mapping, Sequence

from loragate.gateway.errors import TooManyRequests
from loragate.gateway.limits.backend import MICROSECONDS, Refused, Reply
from loragate.gateway.limits.calendar import until_next_day, until_next_month
from loragate.gateway.limits.headers import headers_of
from loragate.gateway.limits.subject import Kind, Subject

_WORDS: dict[Kind, str] = {
    "requests": "requests per minute",
    "tokens": "tokens per minute",
    "concurrency": "requests at the same time",
    "day": "tokens per day",
    "month": "tokens per month",
}
_CONCURRENCY_WAIT = 1.0  # seconds; nobody knows when a request will end
_WORTH_WAITING = 60.0  # seconds


class RateLimited(TooManyRequests):
    """A limit has no room. `retry` says whether sending the same again, after `retry_after` seconds, can help."""

    def __init__(self, message: str, *, retry_after: float, retry: bool, headers: Mapping[str, str]) -> None:
        super().__init__(message, retry_after=retry_after)
        self._retry = retry
        self._headers = headers

    @property
    def headers(self) -> Mapping[str, str]:
        return {**super().headers, **self._headers, "x-should-retry": "true" if self._retry else "false"}


def never_fits(subjects: Sequence[Subject], tokens: int) -> RateLimited | None:
    """A request that no empty bucket has room for; None where all have."""
    for subject in subjects:
        for kind, limit in subject.limits.items():
            wanted = 1 if kind in ("requests", "concurrency") else tokens
            if wanted > limit:
                message = (
                    f"Request too large for {subject.words}: limit of {limit} {_WORDS[kind]}, requested {wanted}. "
                    "It can never succeed; ask for less."
                )
                return RateLimited(message, retry_after=_WORTH_WAITING, retry=False, headers={})
    return None


def refusal_of(reply: Reply, subjects: Sequence[Subject], tokens: int) -> RateLimited:
    """Names the limit that is the longest in the way."""
    waits = [(_wait(refused, reply.now), refused) for refused in reply.refused]
    wait, refused = max(waits, key=lambda each: each[0])
    subject = subjects[refused.subject]
    wanted = "" if refused.kind in ("requests", "concurrency") else f", requested {tokens}"
    message = (
        f"Rate limit reached for {subject.words}: limit of {subject.limits[refused.kind]} {_WORDS[refused.kind]}"
        f"{wanted}. Please try again in {wait:.3f}s."
    )
    headers = headers_of(reply, subjects)
    return RateLimited(message, retry_after=wait, retry=wait <= _WORTH_WAITING, headers=headers)


def _wait(refused: Refused, now: float) -> float:
    """Seconds."""
    match refused.kind:
        case "day":
            return until_next_day(now) / MICROSECONDS
        case "month":
            return until_next_month(now) / MICROSECONDS
        case _:
            return _CONCURRENCY_WAIT if refused.wait is None else refused.wait / MICROSECONDS
