"""An admitted request's lease on its limits, and the `x-ratelimit-*` headers, with OpenAI's names and notation."""

import math
from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

from loragate.gateway.limits.backend import MICROSECONDS, WINDOW, OperationResult, SubjectState
from loragate.gateway.limits.operations import LeaseRecord
from loragate.gateway.limits.subject import Subject

EXTENSION = 256  # tokens at a time


class LeaseListener(Protocol):
    """Receives the changes of a lease; neither method waits."""

    def extend(self, tokens: int) -> None:
        """Record that the request uses this many more tokens."""

    def settle(self, tokens: int) -> None:
        """Record that the request has ended and used this many tokens in total."""


class Lease:
    """One admitted request's place and tokens. `headers` are its `x-ratelimit-*` headers, as of its admission.

    A lease that is dropped before it was settled, because its request was never begun, used nothing.
    """

    def __init__(
        self,
        reserved: int,
        headers: Mapping[str, str],
        listener: LeaseListener | None = None,
        record: LeaseRecord | None = None,
    ) -> None:
        self.reserved = reserved  # tokens set aside for it
        self.headers = headers
        self.record = record  # by which another process settles it if this one dies; None: nothing limits the request
        self._listener = listener  # None: nothing limits the request

    def extend(self, tokens: int) -> None:
        """Reserve more, because the request has used `tokens` by now, which exceeds what was reserved."""
        more = max(EXTENSION, tokens - self.reserved)
        self.reserved += more
        if self._listener is not None:
            self._listener.extend(more)

    def settle(self, tokens: int) -> None:
        """End the lease; the request used `tokens`. Return at once. Only the first call counts."""
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.settle(tokens)

    def __del__(self) -> None:
        self.settle(0)


PerMinute = Literal["requests", "tokens"]
_KINDS: tuple[PerMinute, ...] = ("requests", "tokens")


def rate_limit_headers(result: OperationResult, subjects: Sequence[Subject]) -> dict[str, str]:
    """Return, for each kind, the headers of the limit that has the least left; none for a kind without a limit."""
    headers: dict[str, str] = {}
    for kind in _KINDS:
        left = [
            _left(limit, _backlog(state, kind, result.now))
            for subject, state in zip(subjects, result.states, strict=True)
            if (limit := subject.limits.get(kind)) is not None
        ]
        if left:
            remaining, limit, backlog = min(left)
            headers[f"x-ratelimit-limit-{kind}"] = str(limit)
            headers[f"x-ratelimit-remaining-{kind}"] = str(remaining)
            headers[f"x-ratelimit-reset-{kind}"] = duration(backlog / MICROSECONDS)
    return headers


def duration(seconds: float) -> str:
    """Format as `1h2m3s`, `6m0s`, `1.5s` or `20ms`, rounded up to a millisecond."""
    milliseconds = math.ceil(round(seconds * 1000, 3))
    if milliseconds < 1000:
        return f"{milliseconds}ms"
    minutes, rest = divmod(milliseconds, 60_000)
    hours, minutes = divmod(minutes, 60)
    text = f"{rest / 1000:.3f}".rstrip("0").rstrip(".") + "s"
    if hours:
        return f"{hours}h{minutes}m{text}"
    return f"{minutes}m{text}" if minutes else text


def _left(limit: int, backlog: float) -> tuple[int, int, float]:
    return max(0, math.floor((WINDOW - backlog) * limit / WINDOW + 1e-6)), limit, backlog


def _backlog(state: SubjectState, kind: PerMinute, now: float) -> float:
    return max(0.0, (state.requests if kind == "requests" else state.tokens) - now)
