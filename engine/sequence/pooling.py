"""Embeddings: one vector for a prompt, made of the states that the model's head would be handed."""

import enum
from collections.abc import Iterator
from contextlib import contextmanager
from functools import reduce

import torch
from torch import Tensor, nn


class Pooling(enum.Enum):
    """Whose state stands for the prompt: its last token's, which has seen all others, or the mean over all tokens."""

    LAST = "last"
    MEAN = "mean"


class PooledStates:
    """The sums of one prompt's final hidden states, by chunks, as far as they are computed."""

    def __init__(self, pooling: Pooling, length: int) -> None:
        self._first = 0 if pooling is Pooling.MEAN else length - 1
        self._length = length
        self._sums: dict[int, Tensor] = {}  # [hidden], by where their chunks begin

    def wanted(self, start: int, stop: int) -> range:
        """Of the prompt's tokens [start, stop) those whose states count."""
        return range(max(start, self._first), stop)

    def add(self, states: Tensor, start: int) -> None:
        """The states [tokens, hidden] of the wanted tokens from position `start` on. Whatever was there from that
        position on is computed anew: a prompt begins again after a preemption, a chunk after a lack of memory."""
        before = {at: total for at, total in self._sums.items() if at < start}
        assert before or start == self._first, "states were left out"
        self._sums = before | {start: states.sum(dim=0, dtype=torch.float32)}

    def mean(self) -> Tensor:
        """[hidden], once all of the prompt is computed."""
        assert self._sums, "the prompt is not computed yet"
        return reduce(torch.add, self._sums.values()) / (self._length - self._first)


@contextmanager
def diverted(head: nn.Module, rows: int) -> Iterator[list[Tensor]]:
    """While this is open, the head computes the first `rows` rows of what it is handed, [1, rows + others, hidden];
    the others' states [others, hidden] are in the list afterwards."""
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
