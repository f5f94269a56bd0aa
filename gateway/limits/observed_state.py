"""What this process remembers of one tenant's book, to hand it in where the book forgot."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from loragate.gateway.limits.backend import MICROSECONDS, Reply, State
from loragate.gateway.limits.subject import Subject


@dataclass
class Held:
    """A lease of ours that the book has to know until it is settled there.

    `alone`: given out while the book was away, which was never charged for it.
    """

    id: str
    subjects: tuple[Subject, ...]
    tokens: int
    alone: bool

    @property
    def handed_in(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "tokens": 0 if self.alone else self.tokens,
            "subjects": [subject.asked for subject in self.subjects],
        }


@dataclass
class Memory:
    """Of one tenant."""

    born: str = ""
    _ahead: float = 0  # how far the book's clock was ahead of ours
    seen: dict[str, tuple[Subject, State, float]] = field(default_factory=dict)
    held: dict[str, Held] = field(default_factory=dict)
    unheard: list[Held] = field(default_factory=list)  # given out alone, and not told to the book yet

    def hold(self, held: Held) -> None:
        """One that was given out just now."""
        self.held[held.id] = held
        if held.alone:
            self.unheard.append(held)

    def see(self, born: str, reply: Reply, subjects: Sequence[Subject]) -> None:
        """The latest word of the book."""
        if reply.verdict == "lost":
            return
        self.born, self._ahead = born, reply.now - _monotonic()
        for subject, state in zip(subjects, reply.states, strict=True):
            self.seen[subject.name] = (subject, state, reply.now)

    def is_tight(self, held: Held) -> bool:
        """Whether somebody may be refused for this lease's place: half of all were taken, or nobody knows how many."""
        for subject in held.subjects:
            places = subject.limits.get("concurrency")
            if places is not None:
                seen = self.seen.get(subject.name)
                if seen is None or 2 * seen[1].in_flight > places:
                    return True
        return False

    def states(self, now: float) -> list[dict[str, Any]]:
        """Everything seen, for a book by whose clock it is `now`."""
        later = now - (_monotonic() + self._ahead)
        return [
            {
                "name": name,
                "seen": {"at": at, "r": state.requests + later, "t": state.tokens + later, "c": state.in_flight},
                **_sum("d", state.day, state.day_tokens),
                **_sum("m", state.month, state.month_tokens),
            }
            for name, (_, state, at) in self.seen.items()
        ]


def _monotonic() -> float:
    return time.monotonic() * MICROSECONDS


def _sum(window: str, which: int, tokens: int) -> dict[str, int]:
    return {} if which < 0 else {window: which, window + "s": tokens}
