"""Incremental conversion of token ids to text.

The deltas of any sequence of tokens add up to the text that decoding the sequence at once gives. No delta contains a
part of a character, and none ever has to be revoked.
"""

import codecs
from collections.abc import Collection, Sequence
from typing import Protocol

from loragate.prompts.tokenizer import TextTokenizer

_REPLACEMENT = "\ufffd"
_CONTEXT_TOKENS = 8
# A character has at most four bytes, so more tokens than this that still end in U+FFFD will not become one.
_MAX_TOKENS_PER_CHARACTER = 8


class Detokenizer(Protocol):
    """Converts the tokens of one completion."""

    def push(self, *token_ids: int) -> str:
        """Return the text that these tokens complete, often empty."""
        ...

    def finish(self) -> str:
        """Return the text held back, after the last token."""
        ...


def detokenizer(tokenizer: TextTokenizer, prompt: Sequence[int], shown: Collection[int] = ()) -> Detokenizer:
    """Return a detokenizer for text that continues `prompt`; some tokenizers join tokens differently at a text's start.

    Special tokens are omitted, except those in `shown`.
    """
    context = [id_ for id_ in prompt[-_CONTEXT_TOKENS:] if id_ not in tokenizer.special_ids]
    if tokenizer.token_bytes.byte_level:
        return _ByteDetokenizer(tokenizer, context, frozenset(shown))
    return _WindowDetokenizer(tokenizer, context, frozenset(shown))


class _ByteDetokenizer:
    """Decodes the tokens' bytes as UTF-8, for byte-level vocabularies."""

    def __init__(self, tokenizer: TextTokenizer, context: Sequence[int], shown: frozenset[int]) -> None:
        self._tokenizer = tokenizer
        self._hidden = tokenizer.special_ids - shown
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.push(*context)

    def push(self, *token_ids: int) -> str:
        bytes_of, hidden = self._tokenizer.token_bytes, self._hidden
        return self._decoder.decode(b"".join([bytes_of(id_) for id_ in token_ids if id_ not in hidden]))

    def finish(self) -> str:
        return self._decoder.decode(b"", final=True)


class _WindowDetokenizer:
    """Decodes new tokens together with those before them and returns the added text, for all other vocabularies.

    The window starts where a delta started, so it never begins inside a character.
    """

    def __init__(self, tokenizer: TextTokenizer, context: Sequence[int], shown: frozenset[int]) -> None:
        self._tokenizer = tokenizer
        self._shown = shown
        self._before = list(context)
        self._before_text = tokenizer.decode(self._before)
        self._fresh: list[int] = []

    def push(self, *token_ids: int) -> str:
        return "".join(map(self._push, token_ids))

    def _push(self, token_id: int) -> str:
        if token_id in self._shown:
            return self._cut() + self._tokenizer.token_bytes(token_id).decode()
        if token_id in self._tokenizer.special_ids:
            return ""
        self._fresh.append(token_id)
        text = self._tokenizer.decode(self._before + self._fresh)
        if text.endswith(_REPLACEMENT) and len(self._fresh) < _MAX_TOKENS_PER_CHARACTER:
            return ""
        return self._slide(text)

    def finish(self) -> str:
        text = self._tokenizer.decode(self._before + self._fresh)
        if not text.startswith(self._before_text):
            # An incomplete character makes some decoders reject the valid bytes before it, which were already sent.
            return self._tokenizer.decode(self._fresh)
        return self._slide(text)

    def _cut(self) -> str:
        """End the current text, so that the next token is decoded like the start of a text."""
        rest = self.finish()
        self._before, self._before_text, self._fresh = [], "", []
        return rest

    def _slide(self, text: str) -> str:
        delta = text[len(self._before_text) :]
        self._before, self._fresh = self._fresh, []
        self._before_text = self._tokenizer.decode(self._before)
        return delta
