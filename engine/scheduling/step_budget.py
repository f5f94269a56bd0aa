"""Prefill budgets from measured step durations."""

from dataclasses import dataclass

MIN_CHUNK = 16
"""Prefill tokens that every step may compute, so that prompts progress however long decoding alone takes."""

MAX_SCORED_ROWS = 256
"""Rows of logits of prompts that a step may compute: each is as large as the vocabulary."""

_UNMEASURED_ROWS = 64  # of these, before it is known how long they take

_MEMORY = 0.9
"""Weight of a sample after one further sample."""


@dataclass(frozen=True, slots=True)
class StepWork:
    """The work of a step."""

    decoding: int = 0  # sequences
    prefill: int = 0  # tokens
    scored: int = 0  # of these, tokens whose logits are computed
    served: float = 0.0  # units of service
    batches_only: bool = False  # it has rows of batches and no others


class StepTimes:
    """Keeps the time between a sequence's tokens near `target` seconds while prompts are computed in the same steps.

    This is the token budget of Sarathi-Serve (Agrawal et al., arXiv:2403.02310), chosen by measurement.
    """

    def __init__(self, target: float | None) -> None:
        self._target = target
        self._decode_seconds = 0.0  # of a step without prefill
        self._prefill_seconds = 0.0  # this sum and the next one decay
        self._prefill_tokens = 0.0
        self._scored_seconds = 0.0  # beyond those of prefill; these two decay too
        self._scored_rows = 0.0

    @property
    def seconds_per_prompt_token(self) -> float:
        """The measured time per prompt token; 0 before the first prompt."""
        return self._prefill_seconds / self._prefill_tokens if self._prefill_tokens else 0.0

    @property
    def seconds_per_scored_token(self) -> float:
        """The measured time of the logits of a prompt token, beyond that of the token; 0 before the first one."""
        return self._scored_seconds / self._scored_rows if self._scored_rows else 0.0

    def observe(self, decoding: int, prefill: int, seconds: float, scored: int = 0) -> None:
        """Record the duration of a step with so many decoding sequences and prefill tokens, `scored` of them with
        logits."""
        if not prefill:
            known = self._decode_seconds or seconds
            self._decode_seconds = _MEMORY * known + (1 - _MEMORY) * seconds
            return
        own = seconds - self._decode_seconds if decoding else seconds
        if scored:
            beyond = own - prefill * self.seconds_per_prompt_token
            self._scored_seconds = _MEMORY * self._scored_seconds + max(0.0, beyond)
            self._scored_rows = _MEMORY * self._scored_rows + scored
            return
        self._prefill_seconds = _MEMORY * self._prefill_seconds + max(0.0, own)
        self._prefill_tokens = _MEMORY * self._prefill_tokens + prefill

    def prefill_budget(self, max_tokens: int, decoding: int, seconds: float | None = None) -> int:
        """Return the prefill tokens of the next step; `max_tokens` if no sequence decodes, as none would wait.

        `seconds` is a further bound, on the time for prefill.
        """
        cost = self.seconds_per_prompt_token
        bounds = [] if seconds is None else [seconds]
        if self._target is not None:
            bounds.append(self._target - self._decode_seconds)
        if not bounds or not decoding or not cost:
            return max_tokens
        return min(max_tokens, max(MIN_CHUNK, int(min(bounds) / cost)))

    def scoring_budget(self, decoding: int, seconds: float | None = None) -> int:
        """Return the prompt tokens with logits of the next step; the target holds whether a sequence decodes or not.

        `seconds` is as in `prefill_budget`.
        """
        bounds = [] if seconds is None or not decoding else [seconds]
        if self._target is not None:
            bounds.append(self._target - (self._decode_seconds if decoding else 0.0))
        if not bounds:
            return MAX_SCORED_ROWS
        if not self._scored_rows:
            return _UNMEASURED_ROWS
        cost = self.seconds_per_prompt_token + self.seconds_per_scored_token
        return min(MAX_SCORED_ROWS, max(MIN_CHUNK, int(min(bounds) / cost))) if cost else MAX_SCORED_ROWS

    def prefill_equivalent(self, scored: int) -> int:
        """Return how many prompt tokens take as long as the logits of so many."""
        cost = self.seconds_per_prompt_token
        return int(scored * self.seconds_per_scored_token / cost) if cost else 0


_CLEAN_STEPS = 64


class StepBound:
    """The maximum number of rows of a step, halved after each out-of-memory error.

    After 64 successful steps in a row it doubles again, up to `max_rows`.
    """

    def __init__(self, max_rows: int) -> None:
        self._max_rows = max_rows
        self._clean = 0
        self.rows = max_rows

    def record_out_of_memory(self, rows: int) -> None:
        """Record that a step of so many rows, at least two, ran out of memory."""
        self._clean = 0
        self.rows = rows // 2

    def record_success(self) -> None:
        """Record that a step was computed."""
        if self.rows == self._max_rows:
            return
        self._clean += 1
        if self._clean == _CLEAN_STEPS:
            self._clean = 0
            self.rows = min(self._max_rows, 2 * self.rows)
