"""Of a text that is far longer than what is kept of it, the beginning alone becomes tokens: they take some hundred
bytes each on their way, and all of a line of 4 MiB would take a gigabyte.
"""

from collections.abc import Sequence

from loragate.finetune.data.errors import InvalidLine
from loragate.finetune.data.loss_mask import MaskedText
from loragate.prompts.tokenizer import TextTokenizer

_CHARACTERS_A_TOKEN = 8  # more than most have
_FEWEST, _MOST = 1 << 14, 1 << 20  # characters


class Truncator:
    """For samples of at most `max_length` tokens."""

    def __init__(self, tokenizer: TextTokenizer, end_ids: Sequence[int], max_length: int) -> None:
        self._tokenizer = tokenizer
        self._end_ids = frozenset(end_ids)
        self._max_length = max_length
        self._enough = max(_FEWEST, _CHARACTERS_A_TOKEN * max_length)
        self._most = max(_MOST, self._enough)

    def of(self, text: MaskedText) -> MaskedText:
        """It, or as much of it as becomes the same sample. Raises InvalidLine where that would be too much."""
        size = self._enough
        while size < len(text.text) and size <= self._most:
            known = self._known(text, size)
            if known is not None:
                return known
            size *= 2
        if len(text.text) > self._most:
            raise InvalidLine(
                f"its text of {len(text.text)} characters is too long: where words run into each other, at most "
                f"{self._most} are read"
            )
        return text

    def _known(self, text: MaskedText, size: int) -> MaskedText | None:
        """So much of it, if its tokens suffice. Where an answer ends may depend on all of it: see `encoding`."""
        ids, spans = self._tokenizer.encode_prefix(text.text[:size], plain=text.plain)
        if len(ids) <= self._max_length:
            return None
        for start, stop in text.learned:
            inside = (ids[place] for place, (first, last) in enumerate(spans) if start <= first < min(stop, last))
            if stop >= size and not self._end_ids.isdisjoint(inside):
                return None
        return text.beginning(size)
