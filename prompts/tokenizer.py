"""The base model's tokenizer, read from the manifest's `tokenizer.json`."""

import json
from collections.abc import Sequence

from tokenizers import Encoding, Tokenizer
from tokenizers.pre_tokenizers import Sequence as PreTokenizers
from tokenizers.pre_tokenizers import Split

from loragate.prompts.special_text import MARK, SpecialText
from loragate.prompts.token_bytes import TokenBytes

_UNSTABLE_WORDS = 16  # the last words may be tokenized differently when the text continues
_SHORT_CHARACTERS = 4096  # encoding as much takes less time than handing it to another thread
Spans = list[tuple[int, int]]


class TextTokenizer:
    """Encodes and decodes text. Thread-safe. A long text is encoded without holding the interpreter.

    `special_text` marks the special tokens that a text spells. The tokenizer removes the marks, and finds none of these
    tokens.
    """

    def __init__(self, tokenizer_json: bytes, *, bos_token: str | None, add_bos: bool) -> None:
        self._tokenizer = Tokenizer.from_buffer(tokenizer_json)
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        unmarked = Split(MARK, "removed")
        given = self._tokenizer.pre_tokenizer
        self._tokenizer.pre_tokenizer = unmarked if given is None else PreTokenizers([unmarked, given])
        self._bos_id: int | None = None
        if add_bos and bos_token:
            self._bos_id = self._tokenizer.token_to_id(bos_token)
        added = self._tokenizer.get_added_tokens_decoder()
        special = {id_: token for id_, token in added.items() if token.special}
        self.special_ids = frozenset(special)
        normalizer = self._tokenizer.normalizer
        is_normalized = normalizer is not None and any(token.normalized for token in special.values())
        self.special_text = SpecialText(
            (token.content for token in special.values()), normalizer.normalize_str if is_normalized else None
        )
        self.added_tokens = {token.content: id_ for id_, token in added.items()}
        self.token_bytes = TokenBytes(self._tokenizer, json.loads(tokenizer_json).get("decoder"))

    def encode_text(self, text: str) -> list[int]:
        """Encode a plain prompt, with the special tokens that the tokenizer adds."""
        ids: list[int] = self._encoding(text, plain=True, only_ids=True).ids
        if self._bos_id is not None and ids[:1] != [self._bos_id]:
            return [self._bos_id, *ids]
        return ids

    def encode_pair(self, first: str, second: str) -> list[int]:
        """Encode two texts, with the special tokens that the tokenizer adds around and between them."""
        if len(first) + len(second) <= _SHORT_CHARACTERS:
            encoding = self._tokenizer.encode(first, second, add_special_tokens=True)
        else:
            encoding = self._tokenizer.encode_batch_fast([(first, second)], add_special_tokens=True)[0]
        return self._with_bos(encoding.ids, [], plain=True)[0]

    def encode_chat(self, rendered: str) -> list[int]:
        """Encode a rendered chat, whose template has already added the special tokens."""
        ids: list[int] = self._encoding(rendered, plain=False, only_ids=True).ids
        return ids

    def least_tokens(self, text: str, limit: int, *, plain: bool) -> int:
        """Return more than `limit` if the beginning of the text shows that it has more tokens, otherwise 0.

        Longer and longer beginnings are read until one shows it, but none over half of the text.
        """
        size = limit
        while 2 * size <= len(text):
            beginning = text[:size]
            count = len(self._encoding(beginning, plain=plain, only_ids=True))
            if count > limit:
                # Where words are not distinguished, the tokens of a beginning may change; their number does not halve.
                # Words take four times as long to find, most of it while they hold the interpreter.
                least = count // 2
                if least <= limit:
                    least = max(least, _stable_tokens(self._encoding(beginning, plain=plain).word_ids))
                if least > limit:
                    return least
            size *= 2
        return 0

    def encode_prefix(self, text: str, *, plain: bool) -> tuple[list[int], Spans]:
        """Encode the beginning of a text: return those tokens, as `encode_batch` does, that stay the same however the
        text continues.

        A tokenizer that processes words one by one looks only a few words ahead. For other tokenizers, and for text
        without words, no token is certain.
        """
        encoding = self._encoding(text, plain=plain)
        spans = encoding.offsets
        stable = _stable_tokens(encoding.word_ids)
        if not text[spans[stable][0] if stable else 0 :].strip():
            stable = 0  # some added tokens include the white space before them
        return self._with_bos(encoding.ids[:stable], spans[:stable], plain=plain)

    def encode_batch(self, texts: Sequence[str], *, plain: bool) -> list[tuple[list[int], Spans]]:
        """Encode texts on all cores, like `encode_text` (if `plain`) or `encode_chat`, with the span of characters
        [start, stop) of each token.

        Special tokens that the tokenizer adds have the span [0, 0).
        """
        encodings = self._tokenizer.encode_batch(texts, add_special_tokens=plain)
        return [self._with_bos(list(each.ids), list(each.offsets), plain=plain) for each in encodings]

    def _encoding(self, text: str, *, plain: bool, only_ids: bool = False) -> Encoding:
        if len(text) <= _SHORT_CHARACTERS:
            return self._tokenizer.encode(text, add_special_tokens=plain)
        # `encode` holds the interpreter until it is done, a second for a megabyte; these release it. The fast one gives
        # the same ids in a quarter of the time, but not the words.
        encode = self._tokenizer.encode_batch_fast if only_ids else self._tokenizer.encode_batch
        return encode([text], add_special_tokens=plain)[0]

    def _with_bos(self, ids: list[int], spans: Spans, *, plain: bool) -> tuple[list[int], Spans]:
        if plain and self._bos_id is not None and ids[:1] != [self._bos_id]:
            return [self._bos_id, *ids], [(0, 0), *spans]
        return ids, spans

    @property
    def vocab_size(self) -> int:
        """The number of tokens, including added ones."""
        return int(self._tokenizer.get_vocab_size(with_added_tokens=True))

    def decode(self, token_ids: Sequence[int], *, special: bool = False) -> str:
        """Return the text of a whole sequence; with `special`, special tokens are spelled in it."""
        text: str = self._tokenizer.decode(token_ids, skip_special_tokens=not special)
        return text

    def token_strs(self, token_ids: Sequence[int]) -> list[str]:
        """Return the tokens as the vocabulary spells them; "" for an id that it does not have."""
        return [self._tokenizer.id_to_token(id_) or "" for id_ in token_ids]


def _stable_tokens(words: Sequence[int | None]) -> int:
    """Return how many tokens, each from the word with this number, precede the last words."""
    last = next((word for word in reversed(words) if word is not None), 0)
    for number, word in enumerate(reversed(words)):
        if word is not None and word <= last - _UNSTABLE_WORDS:
            return len(words) - number
    return 0
