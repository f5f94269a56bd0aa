"""Where one completion stands in its grammar, by llguidance: Earley parsing over a lexer of regex derivatives."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

UNWRITABLE = "the model's vocabulary has no tokens for a text that matches"


class GrammarFailed(Exception):
    """A grammar that was accepted proved too complex while it was followed; the message is the library's."""


class Matcher:
    """Advanced once for each token, never back. Wraps an llguidance matcher, which this one owns."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def fork(self) -> "Matcher":
        """An independent matcher in the same state."""
        return Matcher(self._inner.deep_copy())

    def advance(self, token: int) -> None:
        """Raises GrammarFailed, also for what went wrong when the mask was computed."""
        if self._inner.is_error() or not self._inner.consume_token(token):
            raise GrammarFailed(reason(self._inner.get_error()))

    @property
    def complete(self) -> bool:
        """The text matches, and nothing may follow it."""
        return bool(self._inner.is_stopped())


class MaskFiller:
    """Computes the allowed tokens of many matchers at once, on threads of the library's own."""

    def __init__(self, executor: Any, words: int) -> None:
        self._executor = executor
        self._words = words

    def fill(self, matchers: Sequence[Matcher]) -> npt.NDArray[np.int32]:
        """One row for each: int32 [rows, words], bit i of word w for token 32·w + i. EOS is in it exactly when the
        text may end here. A matcher that fails at this says so when it is advanced."""
        masks = np.zeros((len(matchers), self._words), dtype=np.int32)
        rows = [(matcher._inner, row) for row, matcher in enumerate(matchers)]
        self._executor.unsafe_compute_mask_ptr(rows, masks.ctypes.data, self._words * 4, len(matchers))
        return masks


def reason(message: str) -> str:
    """The library's message without the traces that it puts below it."""
    if UNWRITABLE in message or message.startswith("NoExtension"):
        return UNWRITABLE
    return message.split("\n<", 1)[0].strip()
