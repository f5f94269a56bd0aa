"""The state of one completion in its grammar, by llguidance: Earley parsing over a lexer of regex derivatives."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

UNWRITABLE = "the model's vocabulary has no tokens for a text that matches"


class GrammarFailed(Exception):
    """An accepted grammar proved too complex while it was matched; the message is the library's."""


class Matcher:
    """The state of one sequence, advanced once for each token and never back. Owns an llguidance matcher."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def fork(self) -> "Matcher":
        """Return an independent matcher in the same state."""
        return Matcher(self._inner.deep_copy())

    def advance(self, token: int) -> None:
        """Accept a token. Raise GrammarFailed, also for errors from the computation of the mask."""
        if self._inner.is_error() or not self._inner.consume_token(token):
            raise GrammarFailed(reason(self._inner.get_error()))

    @property
    def complete(self) -> bool:
        """Whether the text matches and cannot be continued."""
        return bool(self._inner.is_stopped())


class MaskFiller:
    """Computes the allowed tokens of many matchers at once, on the library's threads."""

    def __init__(self, executor: Any, words: int) -> None:
        self._executor = executor
        self._words = words

    def fill(self, matchers: Sequence[Matcher]) -> npt.NDArray[np.int32]:
        """Return one row per matcher: int32 [rows, words], bit i of word w for token 32·w + i.

        EOS is in it exactly if the text may end here. A matcher that fails reports it when it is advanced.
        """
        masks = np.zeros((len(matchers), self._words), dtype=np.int32)
        rows = [(matcher._inner, row) for row, matcher in enumerate(matchers)]
        self._executor.unsafe_compute_mask_ptr(rows, masks.ctypes.data, self._words * 4, len(matchers))
        return masks


def reason(message: str) -> str:
    """Return the library's message without the stack trace."""
    if UNWRITABLE in message or message.startswith("NoExtension"):
        return UNWRITABLE
    return message.split("\n<", 1)[0].strip()
