"""The base model's vocabulary in the form that llguidance takes."""

from dataclasses import dataclass
from typing import Any

from loragate.engine.grammar.matcher import UNWRITABLE
from loragate.engine.grammar.vocabulary import Vocabulary, read_vocabulary

_MARKER = "\x02"  # llguidance's own choice: it is in no text, and is never merged with its neighbours


@dataclass(frozen=True, slots=True)
class TokenSpace:
    """The tokens of the model."""

    tokenizer_json: bytes
    size: int  # of the logits
    eos: frozenset[int]

    @property
    def table_size(self) -> int:
        """The number of tokens in the library: it requires an EOS, which follows the last token if there is none."""
        return self.size if self.eos else self.size + 1


def build_tokenizer(space: TokenSpace) -> Any:
    """Return an llguidance.LLTokenizer. Raise UnknownTokenizer, ImportError."""
    from llguidance import LLTokenizer

    vocabulary = read_vocabulary(space.tokenizer_json, space.size, space.eos)
    table: Any = _Table(vocabulary, _Splitter(space.tokenizer_json, vocabulary), space.eos)
    return LLTokenizer(table, n_vocab=len(table.tokens), eos_token=sorted(space.eos) or table.eos_token_id)


class _Table:
    """The attributes that LLTokenizer reads. It identifies special tokens by a first byte that no text has."""

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(self, vocabulary: Vocabulary, splitter: "_Splitter", eos: frozenset[int]) -> None:
        self._splitter = splitter
        self.tokens = [
            b"\xff" + vocabulary.special.get(i, f"<[{i}]>").encode() if text is None else text
            for i, text in enumerate(vocabulary.tokens)
        ]
        if not eos:  # the library requires one: a token after the last, which no logits have
            self.tokens.append(b"\xff<end>")
        self.special_token_ids = [i for i, text in enumerate(self.tokens) if text[:1] == b"\xff"]
        self.eos_token_id = min(eos, default=len(self.tokens) - 1)

    def __call__(self, text: str | bytes) -> list[int]:
        return self._splitter.split(text.decode() if isinstance(text, bytes) else text)


class _Splitter:
    """Splits texts that a grammar forces into the tokens that the model was trained to see for them.

    The library does not check a split, so one that does not add up to the text is never returned.
    """

    def __init__(self, tokenizer_json: bytes, vocabulary: Vocabulary) -> None:
        from tokenizers import Tokenizer

        self._tokenizer = Tokenizer.from_buffer(tokenizer_json)
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._tokens = vocabulary.tokens
        self._ids = {text: i for i, text in enumerate(vocabulary.tokens) if text}
        self._longest = max(map(len, self._ids), default=0)

    def split(self, text: str) -> list[int]:
        """Return the tokens of a text. Raise ValueError if the vocabulary cannot write it."""
        for before in ("", _MARKER):  # a text's first token may differ from that of the same text after another
            ids = self._encoded(before, text)
            if ids is not None:
                return ids
        return self._longest_first(text.encode())

    def _encoded(self, before: str, text: str) -> list[int] | None:
        """Return the last tokens of both texts, if they are exactly `text`."""
        ids: list[int] = self._tokenizer.encode(before + text, add_special_tokens=False).ids
        pieces = [(self._tokens[i] if i < len(self._tokens) else None) or b"\xff" for i in ids]
        wanted = text.encode()
        surplus, start = sum(map(len, pieces)) - len(wanted), 0
        while surplus > 0:
            surplus -= len(pieces[start])
            start += 1
        return ids[start:] if b"".join(pieces[start:]) == wanted else None

    def _longest_first(self, text: bytes) -> list[int]:
        ids: list[int] = []
        start = 0
        while start < len(text):
            stops = range(min(len(text), start + self._longest), start, -1)
            stop = next((stop for stop in stops if text[start:stop] in self._ids), None)
            if stop is None:
                raise ValueError(UNWRITABLE)
            ids.append(self._ids[text[start:stop]])
            start = stop
        return ids
