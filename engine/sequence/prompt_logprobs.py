"""Logprobs of the tokens of a prompt: which states they come from, and what was found."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(eq=False, slots=True)
class PromptScoring:
    """The states of one prompt that its logprobs are computed from, as far as they are computed.

    The state of a token gives the logprobs of the next one, so the first token of a prompt has none, and the last
    token's state belongs to the completion.
    """

    top: int  # most probable tokens for each
    length: int  # of the prompt
    scored: int = 0  # states from the start whose logprobs were launched; a preemption does not reset it

    def wanted(self, start: int, stop: int) -> range:
        """Return those of the tokens [start, stop) whose states are to be scored."""
        return range(max(start, self.scored), min(stop, self.length - 1))

    @property
    def complete(self) -> bool:
        """Whether no state is left to score."""
        return self.scored >= self.length - 1


@dataclass(frozen=True, slots=True)
class PromptLogprobs:
    """Logprobs of consecutive tokens of a prompt under the model's own distribution, as natural logarithms.

    `ranks` count from 1, which is the most probable token. For each token there are `top` of the most probable ones,
    in the lists of ids and logprobs one after the other.
    """

    logprobs: Sequence[float]
    ranks: Sequence[int]
    top: int
    top_ids: Sequence[int]
    top_logprobs: Sequence[float]
