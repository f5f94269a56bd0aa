"""Embeddings: one vector per prompt, pooled from the inputs of the model's head."""

import enum
from collections.abc import Iterator
from contextlib import contextmanager
from functools import reduce

import torch
from torch import Tensor, nn


class Pooling(enum.Enum):
    """The state that represents a prompt: that of its last token, which sees all others, or the mean over all
    tokens."""

    LAST = "last"
    MEAN = "mean"


class PooledStates:
    """The sums of one prompt's final hidden states, by chunk, as far as they are computed."""

    def __init__(self, pooling: Pooling, length: int) -> None:
        self._first = 0 if pooling is Pooling.MEAN else length - 1
        self._length = length
        self._sums: dict[int, Tensor] = {}  # [hidden], by the start of their chunks

    def wanted(self, start: int, stop: int) -> range:
        """Return those of the prompt's tokens [start, stop) whose states are pooled."""
        return range(max(start, self._first), stop)

    def add(self, states: Tensor, start: int) -> None:
        """Add the states [tokens, hidden] of the wanted tokens from position `start` on.

        Earlier sums from that position on are discarded: a prompt restarts after a preemption, and a chunk after
        running out of memory.
        """
        before = {at: total for at, total in self._sums.items() if at < start}
        assert before or start == self._first, "states were left out"
        self._sums = before | {start: states.sum(dim=0, dtype=torch.float32)}

    def mean(self) -> Tensor:
        """Return the pooled state [hidden], once the whole prompt is computed."""
        assert self._sums, "the prompt is not computed yet"
        return reduce(torch.add, self._sums.values()) / (self._length - self._first)


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
