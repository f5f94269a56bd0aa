"""Draft tokens from earlier text: prompt lookup decoding (Saxena, 2023), a case of speculative decoding (Leviathan et
al., 2023, arXiv:2211.17192).

Where the last few tokens occurred earlier, their continuation is likely to follow again: in code, in quotes, in answers
about a document. A draft costs rows of a step but never changes a token: the sampler chooses every token as it would
have, and a draft token is kept only if the sampler chose the same.
"""

from collections.abc import Sequence as Seq

MAX_DRAFT_TOKENS = 16
_MAX_RUN, _MIN_RUN = 4, 2  # tokens that must repeat; one alone repeats by chance
_MAX_PAUSE = 32  # steps


class PromptLookup:
    """Indexes the latest occurrence of each short run of a sequence's tokens.

    After a draft whose first token was wrong it pauses, twice as long each time, so that text without repetition costs
    next to nothing.
    """

    def __init__(self, max_tokens: int) -> None:
        self._max_tokens = max_tokens
        self._ends: dict[tuple[int, ...], int] = {}  # run of tokens → index after its latest occurrence but the last
        self._indexed = 0
        self._pause = self._wait = 0

    @property
    def pausing(self) -> bool:
        """Whether the next draft will be empty."""
        return self._wait > 0

    def propose(self, tokens: Seq[int]) -> list[int]:
        """Return the tokens that may follow, possibly none."""
        self._index(tokens)
        if self._wait:
            self._wait -= 1
            return []
        for length in range(min(_MAX_RUN, len(tokens) - 1), _MIN_RUN - 1, -1):
            start = self._ends.get(tuple(tokens[-length:]))
            if start is not None:
                period = len(tokens) - start  # a run that repeats this soon is periodic
                return [tokens[start + i % period] for i in range(self._max_tokens)]
        return []

    def record_acceptance(self, accepted: int) -> None:
        """Record how many tokens of the last draft were accepted."""
        self._pause = 0 if accepted else min(max(1, 2 * self._pause), _MAX_PAUSE)
        self._wait = self._pause

    def _index(self, tokens: Seq[int]) -> None:
        """Index all runs that end before the last token, so that a run never matches itself."""
        for end in range(self._indexed + 1, len(tokens)):
            for length in range(_MIN_RUN, min(_MAX_RUN, end) + 1):
                self._ends[tuple(tokens[end - length : end])] = end
        self._indexed = max(self._indexed, len(tokens) - 1)
