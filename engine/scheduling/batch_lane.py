"""The lane of batches: how much of their work a step may have, so that no other request is delayed by it."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from loragate.engine.scheduling.step_budget import MIN_CHUNK

_MEMORY = 0.98  # weight of a step after one further step
_VARIED = 0.05  # variance of the rows from which their line is known
_OUTLIER = 2.0  # steps count at most as so many times what is expected: the first of each size takes long
_SLACK = 1.05  # of a step with rows of batches, relative to the same step without them, if no bound is set
_FEW = 4  # rows of a step of batches alone while other requests may come at any moment
_QUIET_SECONDS = 10.0  # without other requests, after which steps of batches alone may take any time


class DecodeTimes:
    """The duration of steps without prompts: a line through the last ones, by their numbers of rows."""

    def __init__(self) -> None:
        self._weight = self._x = self._y = self._xx = self._xy = 0.0  # decaying sums

    def observe(self, rows: int, seconds: float) -> None:
        """Record the duration of a step of so many decoding rows."""
        if not rows:
            return
        known = self.predict(rows)
        if known is not None:
            seconds = min(seconds, _OUTLIER * known)
        new = (1.0, rows, seconds, rows * rows, rows * seconds)
        sums = (self._weight, self._x, self._y, self._xx, self._xy)
        self._weight, self._x, self._y, self._xx, self._xy = (
            _MEMORY * old + each for old, each in zip(sums, new, strict=True)
        )

    @property
    def seconds_per_row(self) -> float:
        """The time that a further row adds. While all steps had the same number of rows, it is a row's share."""
        if not self._weight:
            return 0.0
        mean, variance = self._x / self._weight, self._xx / self._weight - (self._x / self._weight) ** 2
        if variance < _VARIED:
            return self._y / self._weight / mean
        return max(0.0, (self._xy / self._weight - mean * self._y / self._weight) / variance)

    def predict(self, rows: int) -> float | None:
        """Return the duration of a step of so many rows, in seconds; None before the first step."""
        if not self._weight:
            return None
        return max(0.0, (self._y + self.seconds_per_row * (rows * self._weight - self._x)) / self._weight)


class PromptTimes:
    """The time of a prompt's token, beyond that of a step without prompts: a decaying average."""

    def __init__(self) -> None:
        self._seconds = self._tokens = 0.0

    def observe(self, tokens: int, seconds: float) -> None:
        """Record that so many tokens took this time."""
        self._seconds = _MEMORY * self._seconds + max(0.0, seconds)
        self._tokens = _MEMORY * self._tokens + tokens

    @property
    def seconds_per_token(self) -> float | None:
        """The time of one token; None before the first."""
        return self._seconds / self._tokens if self._tokens else None


@dataclass(slots=True)
class BatchRoom:
    """What is left of a step for batches. One that would be empty computes something of them in any case."""

    seconds: float
    per_row: float
    per_token: float | None  # of a prompt; None: not known yet
    empty: bool

    def rows(self, wanted: int) -> int:
        """Return how many of these rows there is time for: all or none."""
        return wanted if self.empty or wanted * self.per_row <= self.seconds else 0

    def prompt(self, wanted: int) -> int:
        """Return how many of a prompt's tokens there is time for."""
        if self.seconds == math.inf or self.per_token == 0:
            return wanted
        fits = 0 if self.per_token is None else int(self.seconds / self.per_token)
        return min(wanted, max(fits, MIN_CHUNK if self.empty else 0))

    def take(self, tokens: int, *, decodes: bool) -> None:
        """Use some of it."""
        self.seconds -= tokens * (self.per_row if decodes else self.per_token or 0.0)
        self.empty = False


class BatchLane:
    """`step_seconds` bounds steps with rows of batches; None: they take as long as they would without."""

    def __init__(self, step_seconds: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._step_seconds = step_seconds
        self._clock = clock
        self._rows = DecodeTimes()
        self._prompts = PromptTimes()
        self._last_other = -math.inf  # when a step last had rows of other requests

    def observe(self, decoding: int, prefill: int, seconds: float) -> None:
        """Record the duration of a step of so many decoding rows and prompt tokens, none of them with logits."""
        if prefill:
            self._prompts.observe(prefill, seconds - (self._rows.predict(decoding) or 0.0))
        else:
            self._rows.observe(decoding, seconds)

    def room(self, decoding: int, prefill: int) -> BatchRoom:
        """Return the room in a step that has so many decoding rows and prompt tokens of other requests."""
        now, alone = self._clock(), not decoding and not prefill
        if not alone:
            self._last_other = now
        elif now - self._last_other > _QUIET_SECONDS:
            return BatchRoom(math.inf, 0.0, 0.0, empty=True)
        base = (self._rows.predict(decoding) or 0.0) + prefill * (self._prompts.seconds_per_token or 0.0)
        seconds = max(0.0, self._bound(base, alone=alone) - base)
        return BatchRoom(seconds, self._rows.seconds_per_row, self._prompts.seconds_per_token, empty=alone)

    def _bound(self, base: float, *, alone: bool) -> float:
        """Return the time that the step may take, `base` of it without batches; 0 while no step was measured."""
        known = self._rows.predict(_FEW)
        if known is None:
            return 0.0
        if self._step_seconds is not None:
            return self._step_seconds
        return known if alone else _SLACK * base
