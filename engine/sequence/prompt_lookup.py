"""Guesses what comes next from what was there before (prompt lookup decoding, Saxena, 2023; a case of speculative
decoding, Leviathan et al., 2023, arXiv:2211.17192): where the last few tokens occurred earlier, their continuation is
likely to follow again, in code, in quotes, in answers about a document. A guess costs rows of a step, never a token:
the sampler chooses every token as it would have, and a guess is kept only where it chose the same.
"""

from collections.abc import Sequence as Seq

MAX_DRAFT_TOKENS = 16
_LONGEST, _SHORTEST = 4, 2  # tokens that must repeat; one alone repeats by chance
_LONGEST_PAUSE = 32  # steps


class PromptLookup:
    """Remembers where each short run of a sequence's tokens was last seen.

    After a guess that was wrong from its first token it pauses, twice as long each time: text that does not repeat
    then costs next to nothing.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._ends: dict[tuple[int, ...], int] = {}  # run of tokens → index after its latest occurrence but the last
        self._indexed = 0
        self._pause = self._wait = 0

    @property
    def pausing(self) -> bool:
        """The next guess is none."""
        return self._wait > 0

    def guess(self, tokens: Seq[int]) -> list[int]:
        """The tokens that may follow; perhaps none."""
        self._index(tokens)
        if self._wait:
            self._wait -= 1
            return []
        for length in range(min(_LONGEST, len(tokens) - 1), _SHORTEST - 1, -1):
            start = self._ends.get(tuple(tokens[-length:]))
            if start is not None:
                period = len(tokens) - start  # what repeats so soon goes round
                return [tokens[start + i % period] for i in range(self._most)]
        return []

    def judged(self, accepted: int) -> None:
        """So many tokens of the last guess were right."""
        self._pause = 0 if accepted else min(max(1, 2 * self._pause), _LONGEST_PAUSE)
        self._wait = self._pause

    def _index(self, tokens: Seq[int]) -> None:
        """All runs that end before the last token, so that a run never finds itself."""
        for end in range(self._indexed + 1, len(tokens)):
            for length in range(_SHORTEST, min(_LONGEST, end) + 1):
                self._ends[tuple(tokens[end - length : end])] = end
        self._indexed = max(self._indexed, len(tokens) - 1)
