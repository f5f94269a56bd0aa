"""Pooling: one vector per prompt, computed from the inputs of the model's head."""

import enum
from collections.abc import Iterator
from contextlib import contextmanager
from functools import reduce

import torch
from torch import Tensor, nn


class Pooling(enum.Enum):
    """What represents a prompt: the state of its last token, which sees all others, or the mean over all tokens.

    Or the logits of a classifier's head, for the last token or for every token.
    """

    LAST = "last"
    MEAN = "mean"
    CLASSIFY = "classify"
    CLASSIFY_TOKENS = "classify_tokens"

    @property
    def classifies(self) -> bool:
        """Whether states go through the adapter's head before they are pooled."""
        return self in (Pooling.CLASSIFY, Pooling.CLASSIFY_TOKENS)

    @property
    def takes_all(self) -> bool:
        """Whether every token counts, and not the last one alone."""
        return self in (Pooling.MEAN, Pooling.CLASSIFY_TOKENS)


class PooledStates:
    """One prompt's final hidden states, or their logits, by chunk, as far as they are computed: sums for a mean."""

    def __init__(self, pooling: Pooling, length: int) -> None:
        self._first = 0 if pooling.takes_all else length - 1
        self._length = length
        self._keeps_rows = pooling is Pooling.CLASSIFY_TOKENS
        self._parts: dict[int, Tensor] = {}  # [width] or [tokens, width], by the start of their chunks

    def wanted(self, start: int, stop: int) -> range:
        """Return those of the prompt's tokens [start, stop) whose states are pooled."""
        return range(max(start, self._first), stop)

    def add(self, states: Tensor, start: int) -> None:
        """Add the rows [tokens, width] of the wanted tokens from position `start` on.

        Earlier ones from that position on are discarded: a prompt restarts after a preemption, and a chunk after
        running out of memory.
        """
        before = {at: part for at, part in self._parts.items() if at < start}
        assert before or start == self._first, "states were left out"
        self._parts = before | {start: states if self._keeps_rows else states.sum(dim=0, dtype=torch.float32)}

    def result(self) -> Tensor:
        """Return the pooled state [width], once the whole prompt is computed, or the rows [tokens · width]."""
        assert self._parts, "the prompt is not computed yet"
        if self._keeps_rows:
            return torch.cat(list(self._parts.values())).flatten()
        return reduce(torch.add, self._parts.values()) / (self._length - self._first)


@contextmanager
def diverted(head: nn.Module, rows: int) -> Iterator[list[Tensor]]:
    """Within this context, the head computes only the first `rows` rows of its input [1, rows + others, hidden].

    The states of the others [others, hidden] are in the yielded list afterwards.
    """
    others: list[Tensor] = []

    def divert(_module: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor]:
        (states,) = args
        others.append(states[0, rows:])
        return (states[:, :rows],)

    hook = head.register_forward_pre_hook(divert)
    try:
        yield others
    finally:
        hook.remove()
