"""What matchers allow as the next token, and the masks that are made of it."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class AllowedTokens:
    """The tokens that may come next: `tokens`, and those that `grammar`, an llguidance matcher, allows in its state.

    With `every` it is each token except `forbidden`, and the two others are empty.
    """

    tokens: frozenset[int] = frozenset()
    grammar: Any = None
    every: bool = False
    forbidden: frozenset[int] = frozenset()

    def also(self, tokens: frozenset[int]) -> "AllowedTokens":
        """Return the same with these tokens allowed too."""
        if self.every:
            return AllowedTokens(every=True, forbidden=self.forbidden - tokens)
        return AllowedTokens(self.tokens | tokens, self.grammar)


ANY_TOKENS = AllowedTokens(every=True)
"""No restriction: a sequence that may have any token needs no mask."""


class MaskFiller:
    """Computes masks of `words` words of 32 tokens, those of grammars on the threads of the library's executor.

    `start_executor` is called for the first grammar: without one, the library is not needed.
    """

    def __init__(self, start_executor: Callable[[], Any], words: int) -> None:
        self._start_executor = start_executor
        self._words = words

    def fill(self, allowed: Sequence[AllowedTokens]) -> npt.NDArray[np.int32]:
        """Return one row for each: int32 [rows, words], bit i of word w for token 32·w + i.

        A grammar allows EOS exactly if the text may end here. One that fails reports it when its matcher is advanced.
        """
        masks = np.zeros((len(allowed), self._words), dtype=np.int32)
        grammars = [(each.grammar, row) for row, each in enumerate(allowed) if each.grammar is not None]
        if grammars:
            self._executor.unsafe_compute_mask_ptr(grammars, masks.ctypes.data, self._words * 4, len(allowed))
        for row, each in zip(masks.view(np.uint32), allowed, strict=True):
            if each.every:
                row[:] = 0xFFFFFFFF
                row &= ~_bits(each.forbidden, self._words)
            elif each.tokens:
                row |= _bits(each.tokens, self._words)
        return masks

    @cached_property
    def _executor(self) -> Any:
        return self._start_executor()


def _bits(tokens: Iterable[int], words: int) -> npt.NDArray[np.uint32]:
    bits = np.zeros(words, dtype=np.uint32)
    for token in tokens:
        bits[token >> 5] |= np.uint32(1 << (token & 31))
    return bits
