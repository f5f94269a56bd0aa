"""Truncates long texts before they are tokenized.

While they are encoded, tokens take some hundred bytes each: all of a line of 4 MiB would take a gigabyte.
"""

from collections.abc import Sequence

from loragate.finetune.data.errors import InvalidLine
from loragate.finetune.data.loss_mask import MaskedText
from loragate.prompts.tokenizer import TextTokenizer

_CHARACTERS_A_TOKEN = 8  # more than most tokens have
_MIN_CHARACTERS, _MAX_CHARACTERS = 1 << 14, 1 << 20  # characters


class Truncator:
    """Truncates texts whose samples keep at most `max_length` tokens."""

    def __init__(self, tokenizer: TextTokenizer, end_ids: Sequence[int], max_length: int) -> None:
        self._tokenizer = tokenizer
        self._end_ids = frozenset(end_ids)
        self._max_length = max_length
        self._first_size = max(_MIN_CHARACTERS, _CHARACTERS_A_TOKEN * max_length)
        self._max_size = max(_MAX_CHARACTERS, self._first_size)

    def truncate(self, text: MaskedText) -> MaskedText:
        """Return the text, or a prefix of it that becomes the same sample. Raise InvalidLine for a text too long to
        find one."""
        size = self._first_size
        while size < len(text.text) and size <= self._max_size:
            prefix = self._sufficient_prefix(text, size)
            if prefix is not None:
                return prefix
            size *= 2
        if len(text.text) > self._max_size:
            raise InvalidLine(
                f"its text of {len(text.text)} characters is too long: without word boundaries, at most "
                f"{self._max_size} are read"
            )
        return text

    def _sufficient_prefix(self, text: MaskedText, size: int) -> MaskedText | None:
        """Return the first `size` characters if their tokens suffice. The end of an answer may depend on the whole
        text: see `encoding`."""
        ids, spans = self._tokenizer.encode_prefix(text.text[:size], plain=text.plain)
        if len(ids) <= self._max_length:
            return None
        for start, stop in text.learned:
            inside = (ids[place] for place, (first, last) in enumerate(spans) if start <= first < min(stop, last))
            if stop >= size and not self._end_ids.isdisjoint(inside):
                return None
        return text.prefix(size)
