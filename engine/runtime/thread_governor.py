"""The number of threads that steps are computed with, lowered while other processes take the processors.

A step is some 150 parallel regions, and each ends when the last thread of the team does. If one of two threads shares
its processor with a busy process, every region waits for that process's time slice, and throughput falls to a
twentieth; one thread alone keeps half of it.
"""

import os
from contextlib import suppress
from dataclasses import dataclass

import torch

from loragate.engine.runtime.contention import Contention, ContentionMeter, measurable
from loragate.engine.runtime.control_groups import cpu_quota
from loragate.kernels import cpu
from loragate.kernels.cpu.openmp import compute_with

if cpu.available():
    from loragate.kernels.cpu.team import team_ids

_INTERVAL = 0.15  # seconds of computing between two readings


@dataclass
class ThreadPolicy:
    """Decides on the number of threads, from `most` down to one.

    A team of n threads loses the share `delay` of its time by waiting for one of them, and 1/n by computing with one
    fewer. So the number falls while the delay is above `worth` / n, and rises when a processor is free and no thread of
    the team waits for one.

    A rise that is followed by a fall within `trial` seconds was a mistake: the next one comes after twice the pause.
    Free processors may be reported wrongly, as in a container that sees its host's; so after `blind` seconds one more
    thread is tried without them.
    """

    most: int
    worth: float = 0.7
    enough: float = 0.6  # free processors that make another thread worthwhile
    calm: float = 0.15  # the highest delay with which the number rises
    trial: float = 2.0
    pause: float = 0.5  # seconds between a fall and the next rise
    longest_pause: float = 60.0
    blind: float = 60.0

    def __post_init__(self) -> None:
        self.threads = self.most
        self._pause = self.pause
        self._rose = self._fell = float("-inf")

    def decide(self, now: float, seen: Contention) -> int:
        """Return the number of threads for the next steps, given what the team met since the last decision."""
        if self.threads > 1 and seen.delay > self.worth / self.threads:
            failed = now - self._rose < self.trial
            self._pause = min(2 * self._pause, self.longest_pause) if failed else self.pause
            self._fell = now
            self.threads = max(1, self.threads - max(1, round(seen.delay)))
        elif self.threads < self.most and seen.delay <= self.calm and now - self._fell >= self._pause:
            if seen.free >= self.enough:
                self._rise(now, max(1, round(seen.free)))
            elif now - self._fell >= self.blind:
                self._rise(now, 1)
        return self.threads

    def _rise(self, now: float, by: int) -> None:
        self._rose = self._fell = now
        self.threads = min(self.most, self.threads + by)


class ThreadGovernor:
    """Applies the policy to the thread that calls it, between its steps. Without Linux's counters it does nothing."""

    def __init__(self, threads: int, *, fixed: bool) -> None:
        self.threads = threads
        self._policy = ThreadPolicy(threads)
        self._active = not fixed and threads > 1 and cpu.available() and measurable()
        self._meter: ContentionMeter | None = None
        self._busy = 0.0  # seconds of computing since the last reading

    def begin(self) -> None:
        """Set the number of threads of the calling thread."""
        compute_with(self.threads)

    def step_ended(self, now: float, seconds: float) -> None:
        """Take note of a step of this duration, which has just ended, and adjust the number of threads."""
        if not self._active:
            return
        self._busy += seconds
        if self._busy < _INTERVAL:
            return
        busy, self._busy = self._busy, 0.0
        try:
            seen = None if self._meter is None else self._meter.read(busy)
        except OSError:  # a thread of the team has ended
            seen = None
        if seen is None:
            self._watch()
            return
        threads = self._policy.decide(now, seen)
        if threads != self.threads:
            self.threads = threads
            compute_with(threads)
            self._watch()

    def end(self) -> None:
        """Close what was opened to measure the team."""
        if self._meter is not None:
            self._meter.close()
            self._meter = None

    def _watch(self) -> None:
        """Measure the present team, from now on."""
        self.end()
        with suppress(OSError):
            self._meter = ContentionMeter(team_ids(), os.sched_getaffinity(0))


def most_threads() -> int:
    """Return torch's number of threads, or the processors of the container's quota if these are fewer."""
    quota = cpu_quota()
    threads: int = torch.get_num_threads()
    return threads if quota is None else min(threads, max(1, round(quota)))
