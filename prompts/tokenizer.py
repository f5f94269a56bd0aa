"""The base model's tokenizer, read from the manifest's `tokenizer.json`."""

import json
from collections.abc import Sequence

from tokenizers import Tokenizer

from loragate.prompts.token_bytes import TokenBytes

_UNSETTLED_WORDS = 16  # the last ones may be others when the text goes on
Spans = list[tuple[int, int]]


class TextTokenizer:
    """Encodes and decodes; safe to use from several threads."""

    def __init__(self, tokenizer_json: bytes, *, bos_token: str | None, add_bos: bool) -> None:
        self._tokenizer = Tokenizer.from_buffer(tokenizer_json)
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._bos_id: int | None = None
        if add_bos and bos_token:
            self._bos_id = self._tokenizer.token_to_id(bos_token)
        added = self._tokenizer.get_added_tokens_decoder()
        self.special_ids = frozenset(id_ for id_, token in added.items() if token.special)
        self.added_tokens = {token.content: id_ for id_, token in added.items()}
        self.token_bytes = TokenBytes(self._tokenizer, json.loads(tokenizer_json).get("decoder"))
        self.longest_token = max(map(len, self._tokenizer.get_vocab(with_added_tokens=True)), default=1)

    def encode_text(self, text: str) -> list[int]:
        """A plain prompt, with the special tokens that the tokenizer puts around a text."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=True).ids
        if self._bos_id is not None and ids[:1] != [self._bos_id]:
            return [self._bos_id, *ids]
        return ids

    def encode_chat(self, rendered: str) -> list[int]:
        """A rendered chat: its template has put the special tokens there already."""
        ids: list[int] = self._tokenizer.encode(rendered, add_special_tokens=False).ids
        return ids

    def encode_prefix(self, text: str, *, plain: bool) -> tuple[list[int], Spans]:
        """Of a text that goes on: those tokens, as `encode_batch` gives them, that stay the same whatever follows.

        A tokenizer that takes words one by one sees no further than the next few; of one that does not, and of a text
        without words, nothing is known.
        """
        encoding = self._tokenizer.encode(text, add_special_tokens=plain)
        spans = encoding.offsets
        known = _settled(encoding.word_ids)
        if not text[spans[known][0] if known else 0 :].strip():
            known = 0  # some added tokens take the white space before them
        return self._begun(encoding.ids[:known], spans[:known], plain=plain)

    def encode_batch(self, texts: Sequence[str], *, plain: bool) -> list[tuple[list[int], Spans]]:
        """As `encode_text` or `encode_chat`, on all cores; each token beside the characters [start, stop) it is from.

        Special tokens put around a text come from the characters [0, 0).
        """
        encodings = self._tokenizer.encode_batch(texts, add_special_tokens=plain)
        return [self._begun(list(each.ids), list(each.offsets), plain=plain) for each in encodings]

    def _begun(self, ids: list[int], spans: Spans, *, plain: bool) -> tuple[list[int], Spans]:
        if plain and self._bos_id is not None and ids[:1] != [self._bos_id]:
            return [self._bos_id, *ids], [(0, 0), *spans]
        return ids, spans

    @property
    def vocab_size(self) -> int:
        """Tokens that have a text, added ones included."""
        return int(self._tokenizer.get_vocab_size(with_added_tokens=True))

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of a whole sequence, special tokens left out."""
        text: str = self._tokenizer.decode(token_ids, skip_special_tokens=True)
        return text


def _settled(words: Sequence[int | None]) -> int:
    """How many tokens, each from the word with this number, come before the last words."""
    last = next((word for word in reversed(words) if word is not None), 0)
    for number, word in enumerate(reversed(words)):
        if word is not None and word <= last - _UNSETTLED_WORDS:
            return len(words) - number
    return 0
