"""How long steps take, learned from those that ran: so many prefill tokens go into a step that it ends in time."""

from dataclasses import dataclass

LEAST_CHUNK = 16
"""Prefill tokens that a step may always compute: prompts get on, however long decoding alone takes."""

_MEMORY = 0.9
"""What a sample is worth after one more."""


@dataclass(frozen=True, slots=True)
class StepWork:
    """What a step is made of."""

    decoding: int = 0  # sequences
    prefill: int = 0  # tokens
    served: float = 0.0  # units of service


class StepTimes:
    """Keeps the time between a sequence's tokens near `target` seconds while prompts are computed beside it
    (the token budget of Sarathi-Serve, Agrawal et al., arXiv:2403.02310, chosen by measurement)."""

    def __init__(self, target: float | None) -> None:
        self._target = target
        self._decode_seconds = 0.0  # of a step without prefill
        self._prefill_seconds = 0.0  # both sums decay
        self._prefill_tokens = 0.0

    @property
    def seconds_per_prompt_token(self) -> float:
        """0 before the first prompt."""
        return self._prefill_seconds / self._prefill_tokens if self._prefill_tokens else 0.0

    def observe(self, decoding: int, prefill: int, seconds: float) -> None:
        """A step of so many decoding sequences and prefill tokens took so long."""
        if not prefill:
            known = self._decode_seconds or seconds
            self._decode_seconds = _MEMORY * known + (1 - _MEMORY) * seconds
            return
        own = seconds - self._decode_seconds if decoding else seconds
        self._prefill_seconds = _MEMORY * self._prefill_seconds + max(0.0, own)
        self._prefill_tokens = _MEMORY * self._prefill_tokens + prefill

    def prefill_budget(self, most: int, decoding: int) -> int:
        """Prefill tokens of the next step. Nobody waits for a step in which nobody decodes: then `most`."""
        cost = self.seconds_per_prompt_token
        if self._target is None or not decoding or not cost:
            return most
        affordable = int((self._target - self._decode_seconds) / cost)
        return min(most, max(LEAST_CHUNK, affordable))


_CLEAN_STEPS = 64


class StepBound:
    """`rows` is `most` to begin with, half of what failed afterwards, and twice as much again whenever so many steps in
    a row went well."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._clean = 0
        self.rows = most

    def ran_out(self, rows: int) -> None:
        """A step of so many tokens, at least two, was too large."""
        self._clean = 0
        self.rows = rows // 2

    def went_well(self) -> None:
        """A step was computed."""
        if self.rows == self._most:
            return
        self._clean += 1
        if self._clean == _CLEAN_STEPS:
            self._clean = 0
            self.rows = min(self._most, 2 * self.rows)
